CREATE TABLE places (id int, kind text, at geometry(Point, 4326));
INSERT INTO places SELECT i, 'kind ' || i % 7, ST_SetSRID(ST_MakePoint(i % 360 - 180, i % 170 - 85), 4326) FROM generate_series(1,
    5000) i;
CREATE INDEX ON places USING gist (at);
VACUUM (ANALYZE, FREEZE) places;
-- Queries
SELECT kind, count(*) FROM places WHERE ST_X(at) > 10 GROUP BY kind;
SELECT count(*) FROM places WHERE at && ST_MakeEnvelope(-10, -10, 10, 10, 4326);
SELECT count(*), avg(ST_Distance(at, ST_SetSRID(ST_MakePoint(0, 0), 4326))) FROM places WHERE kind <> 'kind 3';
SELECT kind, ST_AsText(ST_Extent(at)::geometry) FROM places GROUP BY kind;
SELECT kind, max(ST_Y(at)) FROM places GROUP BY kind ORDER BY kind;
SELECT id FROM places ORDER BY at <-> ST_SetSRID(ST_MakePoint(3, 4), 4326), id LIMIT 5;
SELECT count(*) FROM places a JOIN places b ON a.id = b.id + 1 WHERE ST_DWithin(a.at, b.at, 2);
SELECT a.kind, count(*) FROM places a JOIN orders o ON o.id = a.id WHERE o.state = 'open' GROUP BY a.kind;
