"""The default domain: sets of pictures, readers, loading, augmentations, networks and probes."""
