"""A run folder as a service that audits itself: scores, late outcomes, calibration; without torch."""
