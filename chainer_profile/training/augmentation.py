"""What a training image undergoes before the network sees it: a random crop and flip."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy

#: Black pixels added on each side before cropping.
PAD = 4


def augment(
    images: numpy.ndarray[Any, Any], generator: numpy.random.Generator
) -> numpy.ndarray[Any, Any]:
    """Pads each image by 4 black pixels, crops it to its size at random, flips every second one.

    Args:
        images: Shape ``(batch, channels, height, width)``; left as they are.
        generator: Where the crops and flips come from. The same state gives the same images.

    Returns:
        New images of the same shape and type.

    """
    import numpy
    from numpy.lib.stride_tricks import sliding_window_view

    count, _, height, width = images.shape
    padded = numpy.pad(images, ((0, 0), (0, 0), (PAD, PAD), (PAD, PAD)))
    tops, lefts = generator.integers(0, 2 * PAD + 1, (2, count))
    flips = generator.random(count) < 0.5
    windows = sliding_window_view(padded, (height, width), axis=(2, 3))
    cropped = windows[numpy.arange(count), :, tops, lefts]
    cropped[flips] = cropped[flips, :, :, ::-1]
    return cropped
