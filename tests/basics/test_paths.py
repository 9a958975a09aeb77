"""Paths of links."""

from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.basics.paths import (
    depth_first,
    joined,
    link_of,
    links_below,
    links_to,
    truncate,
)

NAMES = st.sampled_from(["a", "b", "0", "1", "conv"])
PATHS = st.lists(NAMES, max_size=4).map(lambda names: "/" + "/".join(names))


@given(PATHS, PATHS, st.integers(0, 5))
def test_link_paths_are_divided_and_truncated(path, holder, depth):
    chain = links_to(path)
    lower = links_below(path, holder)
    assert lower == chain[len(chain) - len(lower) :]
    assert not set(lower) & set(links_to(holder))
    assert set(chain) - set(lower) <= set(links_to(holder))
    short = truncate(path, depth)
    assert short in links_to(path)
    assert len(links_to(short)) == min(depth + 1, len(links_to(path)))
    full_path = joined(holder.rstrip("/"), path)
    assert full_path.startswith(holder.rstrip("/") or "/")
    assert link_of(f"{path.rstrip('/')}/W") == path


@given(st.lists(PATHS, max_size=12))
def test_depth_first_keeps_subtrees_together(paths):
    ordered = depth_first(paths)
    assert sorted(ordered) == sorted(set(paths))
    for link in ordered:
        inside = [index for index, path in enumerate(ordered) if link in links_to(path)]
        assert inside == list(range(ordered.index(link), ordered.index(link) + len(inside)))
