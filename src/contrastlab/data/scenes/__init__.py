"""Scenes: pictures with further registered channels. Generated rooms, NYU-Depth-V2, CamVid."""
