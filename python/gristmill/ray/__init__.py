"""Gristmill on a Ray cluster: agents as actors, and jobs and results as datasets. Install `gristmill[ray]`.

    import gristmill.ray
    from shop import app, resize

    with gristmill.ray.serve_agents(app, num_gpus=1, min=0, max=8, jobs_per_agent=100) as agents:
        agents.wait()

The application is on a server: `gristmill.App("https://jobs.example:8378")`. Each node has the package and the modules of
the application, as those of other Ray programs.
"""

from .agents import Agents, serve_agents
from .datasets import read_results, submit_rows

__all__ = ["Agents", "read_results", "serve_agents", "submit_rows"]
