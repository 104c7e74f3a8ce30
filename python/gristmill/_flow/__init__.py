"""Durable flows: functions that wait for jobs, events and times without a process."""
