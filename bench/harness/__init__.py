"""The benchmark's parts: the machine, the builds, the contenders, the rows and the report."""
