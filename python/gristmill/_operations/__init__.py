"""The rest of the engine: schedules, limits, pauses, listings, history, statistics, events."""
