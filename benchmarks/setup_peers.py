"""Makes one virtual environment for each peer: python setup_peers.py [--only NAME,…] [DIR]"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

PACKAGES = {
    "langgraph": ["langgraph", "langchain", "langchain-openai"],
    "llm": ["llm"],
    "openai_agents": ["openai-agents"],
    "pydantic_ai": ["pydantic-ai-slim[openai]"],
    "smolagents": ["smolagents[openai]"],
    "strands": ["strands-agents[openai]"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    default = Path(__file__).resolve().parent / ".venvs"
    parser.add_argument("folder", nargs="?", type=Path, default=default)
    parser.add_argument("--only", default=",".join(PACKAGES))
    chosen = parser.parse_args()
    for name in chosen.only.split(","):
        python = chosen.folder / name / "bin" / "python"
        if not python.exists():
            print("making", name, flush=True)
            subprocess.run([sys.executable, "-m", "venv", python.parent.parent], check=True)
        install = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*install, *PACKAGES[name]], check=True)


if __name__ == "__main__":
    main()
