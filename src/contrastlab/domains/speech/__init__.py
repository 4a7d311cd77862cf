"""Waveforms and their spectrograms."""
