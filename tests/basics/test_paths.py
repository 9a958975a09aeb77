"""Paths of links."""

from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.basics.paths import (
    above,
    below,
    cut,
    depth_first,
    joined,
    link_of,
    links_to,
    part_below,
)

NAMES = st.sampled_from(["a", "b", "0", "1", "conv"])
PATHS = st.lists(NAMES, max_size=4).map(lambda names: "/" + "/".join(names))


def test_the_links_to_a_path_and_the_part_below_a_link():
    for path, chain in {
        "/": ["/"],
        "/a": ["/", "/a"],
        "/a/b/0": ["/", "/a", "/a/b", "/a/b/0"],
        "loss": ["loss"],
    }.items():
        assert links_to(path) == chain
        assert above(path) == (chain[-2] if len(chain) > 1 else None)
    for path, holder, part in (
        ("/res3/0/conv", "/", "/res3"),
        ("/m/res3/0", "/m", "/m/res3"),
        *(("/m", "/m", "/m"), ("loss", "/", "loss")),
    ):
        assert part_below(path, holder) == part


@given(PATHS, PATHS, st.integers(0, 5))
def test_what_leads_from_one_to_another_and_what_a_path_is_cut_to(path, holder, depth):
    chain = links_to(path)
    ways = below(path, holder)
    assert ways == chain[len(chain) - len(ways) :]
    assert not set(ways) & set(links_to(holder))
    assert set(chain) - set(ways) <= set(links_to(holder))
    found = cut(path, depth)
    assert found in links_to(path)
    assert len(links_to(found)) == min(depth + 1, len(links_to(path)))
    whole = joined(holder.rstrip("/"), path)
    assert whole.startswith(holder.rstrip("/") or "/")
    assert link_of(f"{path.rstrip('/')}/W") == path


@given(st.lists(PATHS, max_size=12))
def test_what_is_below_comes_after_and_together(paths):
    found = depth_first(paths)
    assert sorted(found) == sorted(set(paths))
    for link in found:
        inside = [at for at, path in enumerate(found) if link in links_to(path)]
        assert inside == list(range(found.index(link), found.index(link) + len(inside)))
