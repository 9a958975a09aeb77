"""Entry point: ``python train.py --dataset cifar10`` trains ResNet20."""

import sys

if __name__ == "__main__":
    try:
        from chainer_profile.cli.train import main
        from models.registry import REGISTRY
    except KeyboardInterrupt:  # before main could handle it
        sys.exit(130)
    sys.exit(main(sys.argv[1:], registry=REGISTRY))
