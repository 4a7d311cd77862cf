"""Scenes: pictures with further registered channels. NYU-Depth-V2, CamVid."""
