"""The paper fmicl."""
