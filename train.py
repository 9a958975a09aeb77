"""Entry point: ``python train.py --dataset cifar10`` trains ResNet20."""

import sys

if __name__ == "__main__":
    try:
        from chainer_profile.__main__ import main
    except ImportError as error:
        sys.exit(f"train.py: error: {error}")
    except KeyboardInterrupt:  # before main could handle it
        sys.exit(130)
    sys.exit(main(["train", *sys.argv[1:]]))
