"""`memrelay doctor`: what is wrong between this machine and its memory, and what to type.

It does not own printing and exit codes (`commands/doctor.py`).
"""

from memrelay.doctor.case import Case
from memrelay.doctor.examination import examine
from memrelay.doctor.findings import OK, PROBLEM, SKIPPED, WARNING, Finding

__all__ = ["OK", "PROBLEM", "SKIPPED", "WARNING", "Case", "Finding", "examine"]
