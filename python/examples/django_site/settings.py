"""The settings of a site whose tasks are jobs."""

import importlib.util
import os

SECRET_KEY = "an example's"
USE_TZ = True
# Django 6 has tasks of its own; older versions have the package django-tasks.
INSTALLED_APPS = ["django_tasks"] if importlib.util.find_spec("django_tasks") else []
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
TASKS = {
    "default": {
        "BACKEND": "gristmill.integrations.django.GristmillBackend",
        "QUEUES": ["default", "mail"],
        "OPTIONS": {"store": os.environ.get("SITE_STORE", "jobs.db"), "retries": 1, "retry_delay": 0},
    }
}
