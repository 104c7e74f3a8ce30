"""Gristmill in other libraries: `gristmill.integrations.joblib`, `.fastapi` and `.django`. Each needs its library."""
