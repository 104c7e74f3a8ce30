-- Batches with tags say so in their options, so that a claim looks for tags only where there are some.
UPDATE batch SET options = json_set(coalesce(options, '{}'), '$.tagged', json('true'))
WHERE id IN (SELECT batch_id FROM tagged);
