"""The typing test is also run: what it says of types, the values bear out."""

from __future__ import annotations

import asyncio
import runpy
from pathlib import Path


def test_the_public_interface_does_what_its_types_say():
    api = runpy.run_path(str(Path(__file__).parent / "typing" / "api.py"))
    api["threads"]()
    asyncio.run(asyncio.wait_for(api["loop"](), 10))
