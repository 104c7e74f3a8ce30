-- The refs unpacked, one a row, for people who ask in SQL.
CREATE OR REPLACE VIEW semantic_ref (ref, message, chunk, kind, knowledge) AS
SELECT knowledge.first_ref + item.place - 1, knowledge.message, knowledge.chunk,
       CASE substr(knowledge.kinds, item.place::integer, 1)
           WHEN 'e' THEN 'entity' WHEN 'a' THEN 'action' WHEN 't' THEN 'topic' ELSE 'tag' END,
       item.value
FROM knowledge, json_array_elements(knowledge.items::json) WITH ORDINALITY AS item (value, place);
