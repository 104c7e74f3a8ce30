-- The refs unpacked, one a row, for people who ask in SQL.
CREATE VIEW semantic_ref (ref, message, chunk, kind, knowledge) AS
SELECT knowledge.first_ref + item.key, knowledge.message, knowledge.chunk,
       CASE substr(knowledge.kinds, item.key + 1, 1)
           WHEN 'e' THEN 'entity' WHEN 'a' THEN 'action' WHEN 't' THEN 'topic' ELSE 'tag' END,
       item.value
FROM knowledge, json_each(knowledge.items) AS item;
