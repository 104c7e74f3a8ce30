-- Jobs that are submitted again and again.
CREATE TABLE gristmill.schedule (
    name          text PRIMARY KEY,
    next_at       bigint,          -- milliseconds since 1970, as all times; NULL where it is not due any more
    since         bigint NOT NULL,
    last_at       bigint,
    last_batch_id bigint,
    last_position integer,
    fired         bigint NOT NULL,
    paused_until  bigint,
    definition    text NOT NULL    -- JSON: rule, kind, queue, payload, options, policies
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX schedule_due ON gristmill.schedule (next_at) WHERE next_at IS NOT NULL;
