"""ClickBench: its table `hits`, generated, and its 43 queries as published.

The 105 columns have the names and types of the published table. Those that no query reads hold constants;
the others have shares, numbers of values and skews like those of the published data. The seed is fixed.
"""

COUNTER_QUERIED = 62
USER_QUERIED = 435090932899640449
REFERER_HASH_QUERIED = 3594120000172545465
URL_HASH_QUERIED = 2868770270353813622

# Numbers that columns are made of, for each row. A power of random() skews: few values are in most rows.
DRAWS = """
    floor({rows} / 6.0 * random() ^ 1.5)::bigint as person, floor(6000 * random() ^ 4)::int as counter,
    floor({rows} / 4.0 * random() ^ 2)::bigint as page, floor({rows} / 12.0 * random() ^ 2)::bigint as phrase,
    random() as engine, random() as searching, random() as phone, random() as refer, random() as source,
    random() as google, floor(2678400 * random())::int as second, x"""

# What a column holds; those that are missing hold 0, '' or the first moment.
VALUES = {
    "WatchID": "hashint8extended(x, 1)",
    "JavaEnable": "(source < 0.9)::int",
    "Title": "case when refer < 0.15 then '' when google < 0.0003 then 'Google' || page || ' search' "
             "else 'Page ' || page % 40000 || ' of the site ' || counter end",
    "GoodEvent": "1",
    "EventTime": "timestamp '2013-07-01' + second * interval '1 second'",
    "EventDate": "(timestamp '2013-07-01' + second * interval '1 second')::date",
    "CounterID": f"case when counter = 6 then {COUNTER_QUERIED} else counter * 17 end",
    "ClientIP": "hashint8(person / 2)",
    "RegionID": "case when person % 5 = 0 then 229 else floor(9000 * (person % 997 / 997.0) ^ 3) end",
    "UserID": f"case when person = 77 then {USER_QUERIED} else abs(hashint8extended(person, 2)) end",
    "OS": "person % 90",
    "UserAgent": "person % 80",
    "URL": "case when google < 0.0002 then 'http://www.google.ru/search?q=' || page else 'http://site' || counter "
           "|| '.ru/catalogue/' || page % 900 || '/item-' || page || '.html' end",
    "Referer": "case when refer < 0.2 then '' when refer < 0.5 then 'http://www.site' || counter || '.ru/list/' || page % 50000 "
               "else 'https://search' || person % 60 || '.com/?text=' || phrase end",
    "IsRefresh": "(source < 0.14)::int",
    "ResolutionWidth": "(array[1024, 1280, 1366, 1440, 1600, 1638, 1920, 0])[1 + person % 8]",
    "ResolutionHeight": "(array[600, 768, 800, 900, 1050, 1080])[1 + person % 6]",
    "CookieEnable": "1",
    "IsMobile": "(phone < 0.06)::int",
    "MobilePhone": "case when phone < 0.06 then 1 + person % 90 else 0 end",
    "MobilePhoneModel": "case when phone < 0.056 then 'Model ' || person % 160 else '' end",
    "TraficSourceID": "(array[-1, 0, 0, 1, 2, 3, 6])[1 + floor(source * 7)::int]",
    "SearchEngineID": "case when searching < 0.14 then 2 + phrase % 4 * phrase % 30 else 0 end",
    "SearchPhrase": "case when searching < 0.132 then 'how to find ' || phrase else '' end",
    "AdvEngineID": "case when engine < 0.0063 then (array[2, 2, 2, 27, 13, 45, 44, 3])[1 + person % 8] else 0 end",
    "WindowClientWidth": "1000 + person % 900",
    "WindowClientHeight": "400 + person % 600",
    "ClientEventTime": "timestamp '2013-07-01' + second * interval '1 second'",
    "IsLink": "(engine > 0.91)::int",
    "IsDownload": "(engine > 0.9985)::int",
    "DontCountHits": "(phone > 0.95)::int",
    "HitColor": "'D'",
    "RemoteIP": "hashint8(person / 3)",
    "BrowserLanguage": "'ru'",
    "RefererHash": f"case when refer < 0.05 then {REFERER_HASH_QUERIED} else hashint8extended(phrase, 3) end",
    "URLHash": f"case when page % 400 = 7 then {URL_HASH_QUERIED} else hashint8extended(page, 4) end",
}

TYPES = {"t": ("text", "''"), "v": ("varchar(255)", "''"), "c": ("char", "''"), "s": ("smallint", "0"), "i": ("int", "0"),
         "b": ("bigint", "0"), "d": ("date", "'2013-07-01'"), "m": ("timestamp", "'2013-07-01'")}
COLUMNS = """
    b WatchID  s JavaEnable  t Title  s GoodEvent  m EventTime  d EventDate  i CounterID  i ClientIP  i RegionID
    b UserID  s CounterClass  s OS  s UserAgent  t URL  t Referer  s IsRefresh  s RefererCategoryID
    i RefererRegionID  s URLCategoryID  i URLRegionID  s ResolutionWidth  s ResolutionHeight  s ResolutionDepth
    s FlashMajor  s FlashMinor  t FlashMinor2  s NetMajor  s NetMinor  s UserAgentMajor  v UserAgentMinor
    s CookieEnable  s JavascriptEnable  s IsMobile  s MobilePhone  t MobilePhoneModel  t Params  i IPNetworkID
    s TraficSourceID  s SearchEngineID  t SearchPhrase  s AdvEngineID  s IsArtifical  s WindowClientWidth
    s WindowClientHeight  s ClientTimeZone  m ClientEventTime  s SilverlightVersion1  s SilverlightVersion2
    i SilverlightVersion3  s SilverlightVersion4  t PageCharset  i CodeVersion  s IsLink  s IsDownload
    s IsNotBounce  b FUniqID  t OriginalURL  i HID  s IsOldCounter  s IsEvent  s IsParameter  s DontCountHits
    s WithHash  c HitColor  m LocalEventTime  s Age  s Sex  s Income  s Interests  s Robotness  i RemoteIP
    i WindowName  i OpenerName  s HistoryLength  t BrowserLanguage  t BrowserCountry  t SocialNetwork
    t SocialAction  s HTTPError  i SendTiming  i DNSTiming  i ConnectTiming  i ResponseStartTiming
    i ResponseEndTiming  i FetchTiming  s SocialSourceNetworkID  t SocialSourcePage  b ParamPrice
    t ParamOrderID  t ParamCurrency  s ParamCurrencyID  t OpenstatServiceName  t OpenstatCampaignID
    t OpenstatAdID  t OpenstatSourceID  t UTMSource  t UTMMedium  t UTMCampaign  t UTMContent  t UTMTerm
    t FromTag  s HasGCLID  b RefererHash  b URLHash  i CLID""".split()
COLUMNS = list(zip(COLUMNS[1::2], COLUMNS[::2]))


def fill(rows: int) -> str:
    """SQL that creates the table and fills it."""
    columns = ", ".join(f"{name} {TYPES[kind][0]} not null" for name, kind in COLUMNS)
    values = ", ".join(f"({VALUES.get(name, TYPES[kind][1])})::{TYPES[kind][0]}" for name, kind in COLUMNS)
    return (f"create table hits ({columns}); select setseed(0.5); insert into hits select {values} "
            f"from (select {DRAWS.format(rows=rows)} from generate_series(1, {rows}) x offset 0) draws")


MONTH = (f"CounterID = {COUNTER_QUERIED} AND EventDate >= '2013-07-01' AND EventDate <= '2013-07-31' AND ")
TEN = "DESC LIMIT 10"
QUERIES = (
    "SELECT COUNT(*) FROM hits",
    "SELECT COUNT(*) FROM hits WHERE AdvEngineID <> 0",
    "SELECT SUM(AdvEngineID), COUNT(*), AVG(ResolutionWidth) FROM hits",
    "SELECT AVG(UserID) FROM hits",
    "SELECT COUNT(DISTINCT UserID) FROM hits",
    "SELECT COUNT(DISTINCT SearchPhrase) FROM hits",
    "SELECT MIN(EventDate), MAX(EventDate) FROM hits",
    "SELECT AdvEngineID, COUNT(*) FROM hits WHERE AdvEngineID <> 0 GROUP BY AdvEngineID ORDER BY COUNT(*) DESC",
    f"SELECT RegionID, COUNT(DISTINCT UserID) AS u FROM hits GROUP BY RegionID ORDER BY u {TEN}",
    "SELECT RegionID, SUM(AdvEngineID), COUNT(*) AS c, AVG(ResolutionWidth), COUNT(DISTINCT UserID) FROM hits "
    f"GROUP BY RegionID ORDER BY c {TEN}",
    "SELECT MobilePhoneModel, COUNT(DISTINCT UserID) AS u FROM hits WHERE MobilePhoneModel <> '' "
    f"GROUP BY MobilePhoneModel ORDER BY u {TEN}",
    "SELECT MobilePhone, MobilePhoneModel, COUNT(DISTINCT UserID) AS u FROM hits WHERE MobilePhoneModel <> '' "
    f"GROUP BY MobilePhone, MobilePhoneModel ORDER BY u {TEN}",
    f"SELECT SearchPhrase, COUNT(*) AS c FROM hits WHERE SearchPhrase <> '' GROUP BY SearchPhrase ORDER BY c {TEN}",
    "SELECT SearchPhrase, COUNT(DISTINCT UserID) AS u FROM hits WHERE SearchPhrase <> '' "
    f"GROUP BY SearchPhrase ORDER BY u {TEN}",
    "SELECT SearchEngineID, SearchPhrase, COUNT(*) AS c FROM hits WHERE SearchPhrase <> '' "
    f"GROUP BY SearchEngineID, SearchPhrase ORDER BY c {TEN}",
    f"SELECT UserID, COUNT(*) FROM hits GROUP BY UserID ORDER BY COUNT(*) {TEN}",
    f"SELECT UserID, SearchPhrase, COUNT(*) FROM hits GROUP BY UserID, SearchPhrase ORDER BY COUNT(*) {TEN}",
    "SELECT UserID, SearchPhrase, COUNT(*) FROM hits GROUP BY UserID, SearchPhrase LIMIT 10",
    "SELECT UserID, extract(minute FROM EventTime) AS m, SearchPhrase, COUNT(*) FROM hits "
    f"GROUP BY UserID, m, SearchPhrase ORDER BY COUNT(*) {TEN}",
    f"SELECT UserID FROM hits WHERE UserID = {USER_QUERIED}",
    "SELECT COUNT(*) FROM hits WHERE URL LIKE '%google%'",
    "SELECT SearchPhrase, MIN(URL), COUNT(*) AS c FROM hits WHERE URL LIKE '%google%' AND SearchPhrase <> '' "
    f"GROUP BY SearchPhrase ORDER BY c {TEN}",
    "SELECT SearchPhrase, MIN(URL), MIN(Title), COUNT(*) AS c, COUNT(DISTINCT UserID) FROM hits WHERE "
    "Title LIKE '%Google%' AND URL NOT LIKE '%.google.%' AND SearchPhrase <> '' "
    f"GROUP BY SearchPhrase ORDER BY c {TEN}",
    "SELECT * FROM hits WHERE URL LIKE '%google%' ORDER BY EventTime LIMIT 10",
    "SELECT SearchPhrase FROM hits WHERE SearchPhrase <> '' ORDER BY EventTime LIMIT 10",
    "SELECT SearchPhrase FROM hits WHERE SearchPhrase <> '' ORDER BY SearchPhrase LIMIT 10",
    "SELECT SearchPhrase FROM hits WHERE SearchPhrase <> '' ORDER BY EventTime, SearchPhrase LIMIT 10",
    "SELECT CounterID, AVG(length(URL)) AS l, COUNT(*) AS c FROM hits WHERE URL <> '' GROUP BY CounterID "
    "HAVING COUNT(*) > 100000 ORDER BY l DESC LIMIT 25",
    r"SELECT REGEXP_REPLACE(Referer, '^https?://(?:www\.)?([^/]+)/.*$', '\1') AS k, AVG(length(Referer)) AS l, "
    "COUNT(*) AS c, MIN(Referer) FROM hits WHERE Referer <> '' GROUP BY k HAVING COUNT(*) > 100000 "
    "ORDER BY l DESC LIMIT 25",
    "SELECT SUM(ResolutionWidth), " + ", ".join(f"SUM(ResolutionWidth + {i})" for i in range(1, 90)) + " FROM hits",
    "SELECT SearchEngineID, ClientIP, COUNT(*) AS c, SUM(IsRefresh), AVG(ResolutionWidth) FROM hits "
    f"WHERE SearchPhrase <> '' GROUP BY SearchEngineID, ClientIP ORDER BY c {TEN}",
    "SELECT WatchID, ClientIP, COUNT(*) AS c, SUM(IsRefresh), AVG(ResolutionWidth) FROM hits "
    f"WHERE SearchPhrase <> '' GROUP BY WatchID, ClientIP ORDER BY c {TEN}",
    "SELECT WatchID, ClientIP, COUNT(*) AS c, SUM(IsRefresh), AVG(ResolutionWidth) FROM hits "
    f"GROUP BY WatchID, ClientIP ORDER BY c {TEN}",
    f"SELECT URL, COUNT(*) AS c FROM hits GROUP BY URL ORDER BY c {TEN}",
    f"SELECT 1, URL, COUNT(*) AS c FROM hits GROUP BY 1, URL ORDER BY c {TEN}",
    "SELECT ClientIP, ClientIP - 1, ClientIP - 2, ClientIP - 3, COUNT(*) AS c FROM hits "
    f"GROUP BY ClientIP, ClientIP - 1, ClientIP - 2, ClientIP - 3 ORDER BY c {TEN}",
    f"SELECT URL, COUNT(*) AS PageViews FROM hits WHERE {MONTH} DontCountHits = 0 AND IsRefresh = 0 AND URL <> '' "
    f"GROUP BY URL ORDER BY PageViews {TEN}",
    f"SELECT Title, COUNT(*) AS PageViews FROM hits WHERE {MONTH} DontCountHits = 0 AND IsRefresh = 0 AND Title <> '' "
    f"GROUP BY Title ORDER BY PageViews {TEN}",
    f"SELECT URL, COUNT(*) AS PageViews FROM hits WHERE {MONTH} IsRefresh = 0 AND IsLink <> 0 AND IsDownload = 0 "
    f"GROUP BY URL ORDER BY PageViews {TEN} OFFSET 1000",
    "SELECT TraficSourceID, SearchEngineID, AdvEngineID, CASE WHEN (SearchEngineID = 0 AND AdvEngineID = 0) "
    f"THEN Referer ELSE '' END AS Src, URL AS Dst, COUNT(*) AS PageViews FROM hits WHERE {MONTH} IsRefresh = 0 "
    f"GROUP BY TraficSourceID, SearchEngineID, AdvEngineID, Src, Dst ORDER BY PageViews {TEN} OFFSET 1000",
    f"SELECT URLHash, EventDate, COUNT(*) AS PageViews FROM hits WHERE {MONTH} IsRefresh = 0 AND "
    f"TraficSourceID IN (-1, 6) AND RefererHash = {REFERER_HASH_QUERIED} "
    f"GROUP BY URLHash, EventDate ORDER BY PageViews {TEN} OFFSET 100",
    f"SELECT WindowClientWidth, WindowClientHeight, COUNT(*) AS PageViews FROM hits WHERE {MONTH} IsRefresh = 0 AND "
    f"DontCountHits = 0 AND URLHash = {URL_HASH_QUERIED} "
    f"GROUP BY WindowClientWidth, WindowClientHeight ORDER BY PageViews {TEN} OFFSET 10000",
    "SELECT DATE_TRUNC('minute', EventTime) AS M, COUNT(*) AS PageViews FROM hits "
    f"WHERE CounterID = {COUNTER_QUERIED} AND EventDate >= '2013-07-14' AND EventDate <= '2013-07-15' AND "
    "IsRefresh = 0 AND DontCountHits = 0 GROUP BY DATE_TRUNC('minute', EventTime) "
    "ORDER BY DATE_TRUNC('minute', EventTime) LIMIT 10 OFFSET 1000",
)
