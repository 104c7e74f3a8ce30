import datetime
import sys
from zoneinfo import ZoneInfo

from apscheduler.triggers.cron import CronTrigger
from celery import Celery
from celery.schedules import crontab
from croniter import croniter
from cronsim import CronSim
from crontab import CronTab

UTC = datetime.timezone.utc
expression, zone_name, start_text, count_text = sys.argv[1:]
zone, count = ZoneInfo(zone_name), int(count_text)
start = datetime.datetime.fromisoformat(start_text.replace("Z", "+00:00"))


def of_croniter():
    found = croniter(expression, start.astimezone(zone))
    return [found.get_next(datetime.datetime) for _ in range(count)]


def of_apscheduler():
    """As its scheduler asks: the moment that ran, and a clock a little later."""
    trigger = CronTrigger.from_crontab(expression, timezone=zone)
    moments = [trigger.get_next_fire_time(None, start.astimezone(zone))]
    while len(moments) < count:
        now = (moments[-1].astimezone(UTC) + datetime.timedelta(milliseconds=5)).astimezone(zone)
        moments.append(trigger.get_next_fire_time(moments[-1], now))
    return moments


def of_celery():
    """The minutes at which beat finds the entry due."""
    app = Celery("moments", set_as_current=False)
    app.conf.timezone = zone_name
    fields = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
    entry = crontab(**dict(zip(fields, expression.split())), app=app)
    moments, last = [], start
    while len(moments) < count:
        now = last.replace(second=0) + datetime.timedelta(minutes=1)
        while True:
            entry.nowfun = lambda: now
            if entry.is_due(last)[0]:
                break
            now += datetime.timedelta(minutes=1)
        moments.append(now)
        last = now
    return moments


def of_cronsim():
    found = CronSim(expression, start.astimezone(zone))
    return [next(found) for _ in range(count)]


def of_crontab():
    entry, moments, last = CronTab(expression), [], start
    for _ in range(count):
        last += datetime.timedelta(seconds=entry.next(now=last.astimezone(zone), default_utc=False))
        moments.append(last)
    return moments


for library, moments in {
    "PyPI croniter": of_croniter,
    "PyPI APScheduler": of_apscheduler,
    "PyPI celery": of_celery,
    "PyPI cronsim": of_cronsim,
    "PyPI crontab": of_crontab,
}.items():
    try:
        told = " ".join(moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%MZ") for moment in moments())
    except Exception:
        told = "refused"
    print(f"{library}: {told}")
