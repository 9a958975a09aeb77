"""What ``train.py`` runs: the images, and Chainer's Trainer put together."""
