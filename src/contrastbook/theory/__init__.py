"""Exact theory behind studies and figures: densities that flows fit, correlated Gaussians, joint keys."""
