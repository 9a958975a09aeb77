// ---- the charts themselves

async function begin() {
  const script = document.createElement("script");
  script.textContent = byId("bokeh").textContent;
  document.head.append(script);
  Bokeh.set_log_level("warn");
  await embedVisible();
  root.dataset.ready = "yes";
}
if (document.querySelector(".chart")) begin();
else root.dataset.ready = "yes";
