"""The application of the site's workers: `DJANGO_SETTINGS_MODULE=settings gristmill worker worker:app -q default -q mail`."""

from gristmill.integrations.django import application

app = application()
