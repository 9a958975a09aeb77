"""What ``train.py`` runs: data, augmentation, snapshots, and resuming to the last bit."""
