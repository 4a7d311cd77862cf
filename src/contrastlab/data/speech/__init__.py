"""Speech: waveforms in memory or in files, log-mel spectrograms and their views, what names load."""
