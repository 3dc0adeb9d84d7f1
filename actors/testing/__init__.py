"""Tools for tests: a deterministic simulation of the true actors, and a checker of what must always hold.

Part of the public interface; nothing else in this library imports it.
"""

from actors.testing.checker import Finding, Verdict, check
from actors.testing.scripts import Script, scripted
from actors.testing.simulation import Simulation

__all__ = ["Finding", "Script", "Simulation", "Verdict", "check", "scripted"]
