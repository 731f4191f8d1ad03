"""From frames to scales: collection, two-level reduction, verdicts, and the calibration receipt."""

from flashrt.calibration.receipt import Calibration, load_receipt
from flashrt.calibration.run import calibrate

__all__ = ["Calibration", "calibrate", "load_receipt"]
