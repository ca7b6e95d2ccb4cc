-- Functions of the schema, applied after migrations: they stand here once, and replace those that are there. A function keeps its
-- rights when it is replaced. Who changes one adds a migration, even an empty one, so that it is applied.

-- Those who might call submit before may call each submit afterwards: their names are kept until the rights are given, at the end.
DO $submitters$
BEGIN
    PERFORM set_config('arriero.submitters', coalesce(string_agg(DISTINCT given.grantee::regrole::text, E'\n'), ''), true)
       FROM pg_catalog.pg_proc AS p, LATERAL pg_catalog.aclexplode(p.proacl) AS given
      WHERE p.pronamespace = '{schema}'::regnamespace AND p.proname = 'submit' AND given.grantee NOT IN (0, p.proowner);
END
$submitters$;
DROP FUNCTION IF EXISTS {schema}.submit(text, jsonb, text, integer, double precision, text, text, bigint, boolean); -- of 0.4.0
DROP FUNCTION IF EXISTS {schema}.submit(text, text, text, integer, double precision, text, text, bigint, boolean, text); -- of 0.5.0
DROP FUNCTION IF EXISTS {schema}.submit(text, jsonb, text, integer, double precision, text, text, bigint, boolean, text);

-- now_at: the store's clock. It is the server's, and never before what a process has seen: where that goes back, because it
-- was set or another server took over, an offset lets the store's go on. given: the clock of a test.
CREATE OR REPLACE FUNCTION {schema}.now_at(given bigint) RETURNS bigint LANGUAGE sql VOLATILE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(given, greatest((extract(epoch FROM clock_timestamp()) * 1000000)::bigint
                                    + (SELECT value::bigint FROM {schema}.meta WHERE name = 'clock_offset'),
                                    (SELECT max(renewed_at) FROM {schema}.process)))
$$;

-- is_kept: whether a task of that ledger is there for nobody yet.
CREATE OR REPLACE FUNCTION {schema}.is_kept(number bigint) RETURNS boolean LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT number IS NOT NULL
       AND NOT EXISTS (SELECT 1 FROM {schema}.ledger AS l WHERE l.ledger_no = number AND l.opened_at IS NOT NULL)
$$;

-- is_another_app: whether two submissions under one id name two Apps. The same rule as in core.apps; a test compares.
CREATE OR REPLACE FUNCTION {schema}.is_another_app(one text, other text) RETURNS boolean LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT one <> '' AND other <> '' AND one <> other
$$;

-- number_in_python: a number of a JSON text as Python would write it. Raises numeric_value_out_of_range.
CREATE OR REPLACE FUNCTION {schema}.number_in_python(number text, is_folded boolean) RETURNS text LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp SET extra_float_digits = '1' AS $$
DECLARE
    value double precision;
    parts text[];
    digits text;
    point integer; -- the value is 0.DIGITS times ten to the power of it
BEGIN
    IF number !~ '[.eE]' THEN
        IF length(number) > 4300 THEN -- with its sign, as msgspec counts
            RAISE numeric_value_out_of_range USING MESSAGE = format('one has %s characters', length(number));
        END IF;
        RETURN CASE number WHEN '-0' THEN '0' ELSE number END;
    END IF;
    value := number::double precision;
    IF is_folded THEN
        RETURN CASE WHEN trunc(value) = value AND abs(value) < 9007199254740992 THEN value::bigint::text
                    ELSE 'float ' || value END;
    END IF;
    parts := regexp_match(abs(value)::text, '^(\d+)(?:\.(\d+))?(?:e([-+]\d+))?$');
    digits := parts[1] || coalesce(parts[2], '');
    point := length(parts[1]) + coalesce(parts[3]::integer, 0) - (length(digits) - length(ltrim(digits, '0')));
    digits := trim('0' FROM digits);
    RETURN CASE WHEN value::text LIKE '-%' THEN '-' ELSE '' END || CASE
        WHEN digits = '' THEN '0.0'
        WHEN point > 16 OR point < -4 THEN
            left(digits, 1) || CASE WHEN length(digits) > 1 THEN '.' || substr(digits, 2) ELSE '' END || 'e' || point - 1
        WHEN point <= 0 THEN '0.' || repeat('0', -point) || digits
        WHEN point >= length(digits) THEN digits || repeat('0', point - length(digits)) || '.0'
        ELSE left(digits, point) || '.' || substr(digits, point + 1) END;
END
$$;

-- judged_body: a JSON text as Python would record it: fields in order, no spaces, numbers in Python's spelling.
-- is_folded: in the one form of all that mean the same: besides, a whole number below 2^53 is never written as a float.
-- refusal: why Python would not take it, or why that cannot be told here; hint: the remedy. Then body is null.
CREATE OR REPLACE FUNCTION {schema}.judged_body(given text, is_folded boolean, OUT body text, OUT refusal text, OUT hint text)
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp SET extra_float_digits = '1' AS $$
#variable_conflict use_variable
DECLARE
    depth_max CONSTANT integer := 100;
    bytes_max CONSTANT integer := 1000000;
    given_bytes_max CONSTANT integer := 4000000; -- spaces and escapes are not counted in the end
    brackets text;
    depth bigint;
    doubled text;
    detail text;
BEGIN
    IF octet_length(given) > given_bytes_max THEN
        refusal := format('arguments have %s bytes; the limit is %s', octet_length(given), bytes_max);
        hint := 'keep large data elsewhere and pass its address';
        RETURN;
    END IF;
    -- Before anything reads it as JSON: every reader goes down into it.
    brackets := regexp_replace(regexp_replace(given, '"(?:[^"\\]|\\.)*"', '', 'g'), '[^][{}]', '', 'g');
    IF length(brackets) > depth_max THEN
        SELECT max(b.depth) INTO depth
          FROM (SELECT sum(CASE WHEN each.one IN ('[', '{') THEN 1 ELSE -1 END) OVER (ORDER BY each.nth) AS depth
                  FROM string_to_table(brackets, NULL) WITH ORDINALITY AS each(one, nth)) AS b;
        IF depth > depth_max THEN
            refusal := format('arguments are nested more than %s levels deep', depth_max);
            hint := 'flatten them, or keep them elsewhere and pass their address';
            RETURN;
        END IF;
    END IF;
    WITH RECURSIVE node(path, key, value) AS (
        SELECT ARRAY[]::text[], NULL::text, given::json
        UNION ALL
        SELECT above.path || below.place, below.key, below.value
          FROM node AS above CROSS JOIN LATERAL (
            SELECT '0' || field.key, field.key, field.value
              FROM json_each(CASE json_typeof(above.value) WHEN 'object' THEN above.value ELSE '{}' END) AS field
            UNION ALL
            SELECT '0' || lpad(item.nth::text, 7, '0'), NULL, item.value
              FROM json_array_elements(CASE json_typeof(above.value) WHEN 'array' THEN above.value ELSE '[]' END)
                   WITH ORDINALITY AS item(value, nth)) AS below(place, key, value)
    ), twice AS (
        SELECT n.key FROM node AS n WHERE n.key IS NOT NULL GROUP BY n.path, n.key HAVING count(*) > 1 LIMIT 1
    ), piece(path, is_node, text) AS (
        SELECT n.path, cardinality(n.path) > 0, coalesce(to_json(n.key)::text || ':', '') || CASE json_typeof(n.value)
                   WHEN 'object' THEN '{'
                   WHEN 'array' THEN '['
                   WHEN 'string' THEN to_json(n.value #>> '{}')::text
                   WHEN 'number' THEN {schema}.number_in_python(n.value::text, is_folded)
                   ELSE n.value::text END
          FROM node AS n
        UNION ALL
        SELECT n.path || '1'::text, false, CASE json_typeof(n.value) WHEN 'object' THEN '}' ELSE ']' END
          FROM node AS n WHERE json_typeof(n.value) IN ('object', 'array')
    ), placed AS (
        SELECT p.path, p.text, p.is_node AND lag(cardinality(p.path)) OVER (ORDER BY p.path COLLATE "C")
                   >= cardinality(p.path) AS follows
          FROM piece AS p
    )
    SELECT string_agg(CASE WHEN p.follows THEN ',' ELSE '' END || p.text, '' ORDER BY p.path COLLATE "C"),
           (SELECT t.key FROM twice AS t)
      INTO body, doubled
      FROM placed AS p;
    IF doubled IS NOT NULL THEN
        body := NULL;
        refusal := format('arguments have the key %L twice in one object', doubled);
        hint := 'leave one of them out';
    ELSIF octet_length(body) > bytes_max THEN
        refusal := format('arguments have %s bytes; the limit is %s', octet_length(body), bytes_max);
        body := NULL;
        hint := 'keep large data elsewhere and pass its address';
    END IF;
EXCEPTION
    WHEN numeric_value_out_of_range THEN
        body := NULL;
        refusal := 'arguments hold a number that cannot be told exactly: ' || SQLERRM;
        hint := 'use a float from 5e-324 to 1.7e308, a whole number of up to 4299 digits, or a text';
    WHEN invalid_text_representation OR untranslatable_character OR statement_too_complex THEN
        GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
        body := NULL;
        refusal := 'arguments are no JSON that can be recorded: ' || concat_ws(': ', SQLERRM, nullif(detail, ''));
        hint := 'mend the text; NUL characters and lone surrogates are no text, encode them as base64';
END
$$;

-- is_same_body: whether two JSON texts mean the same to Python. The same rule as in core.bodies; a test compares.
CREATE OR REPLACE FUNCTION {schema}.is_same_body(one text, other text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN one = other OR coalesce(({schema}.judged_body(one, true)).body = ({schema}.judged_body(other, true)).body, false);
END
$$;

-- what_differs: between a known task and a submission: same, workflow or body.
CREATE OR REPLACE FUNCTION {schema}.what_differs(
    known_workflow text, known_hash text, known_arguments text, workflow text, body_hash text, arguments text
) RETURNS text LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN known_workflow <> workflow THEN 'workflow'
        WHEN known_hash = body_hash THEN 'same'
        WHEN {schema}.is_same_body(known_arguments, arguments) THEN 'same'
        ELSE 'body' END
$$;

-- judged_tags: the tags of a task as Python would record them. refusal: why it would not; hint: the remedy. The same rule as in
-- model.tags; a test compares.
CREATE OR REPLACE FUNCTION {schema}.judged_tags(given text, OUT tags text, OUT refusal text, OUT hint text)
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    one record;
    count_max CONSTANT integer := 20;
    value_max CONSTANT integer := 256;
BEGIN
    SELECT j.body, regexp_replace(j.refusal, '^arguments', 'tags'), j.hint INTO tags, refusal, hint
      FROM {schema}.judged_body(given, false) AS j;
    IF refusal IS NOT NULL THEN
        RETURN;
    ELSIF tags NOT LIKE '{%' THEN
        refusal := 'tags are no JSON object';
        hint := 'map names to texts, as in {"tenant": "acme"}';
        tags := NULL;
        RETURN;
    END IF;
    FOR one IN SELECT t.key AS name, json_typeof(t.value) AS kind, t.value #>> '{}' AS text FROM json_each(tags::json) AS t LOOP
        hint := format('a tag has one value, a text of 1 to %s characters without control characters', value_max);
        IF one.name !~ '^[A-Za-z0-9_]([A-Za-z0-9_./-]{0,62}[A-Za-z0-9_])?$' THEN
            refusal := format('tags: %L is not the name of a tag', left(one.name, 60));
            hint := 'use 1 to 64 ASCII letters, digits and _ . / -, with a letter, a digit or _ at both ends';
        ELSIF one.kind <> 'string' THEN
            refusal := format('tag %L has the value %s', one.name, left(one.text, 60));
        ELSIF length(one.text) NOT BETWEEN 1 AND value_max THEN
            refusal := format('tag %L has a value of %s characters', one.name, length(one.text));
        ELSIF one.text ~ '[\u0001-\u001f\u007f-\u009f]' THEN
            refusal := format('the value of tag %L holds a control character', one.name);
        END IF;
        IF refusal IS NOT NULL THEN
            tags := NULL;
            RETURN;
        END IF;
    END LOOP;
    hint := NULL;
    IF (SELECT count(*) FROM json_each(tags::json)) > count_max THEN
        refusal := format('tags: %s tags', (SELECT count(*) FROM json_each(tags::json)));
        hint := format('a task has at most %s', count_max);
        tags := NULL;
    ELSIF tags = '{}' THEN
        tags := NULL;
    END IF;
END
$$;

-- index_tags: keeps the table task_tag as the column tags of a task says.
CREATE OR REPLACE FUNCTION {schema}.index_tags() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        DELETE FROM {schema}.task_tag AS t WHERE t.tagged_no = NEW.task_no;
    END IF;
    INSERT INTO {schema}.task_tag (name, value, tagged_no)
    SELECT each.key, each.value, NEW.task_no FROM json_each_text(coalesce(NEW.tags, '{}')::json) AS each;
    RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER task_tagged AFTER INSERT ON {schema}.task
    FOR EACH ROW WHEN (NEW.tags IS NOT NULL) EXECUTE FUNCTION {schema}.index_tags();
CREATE OR REPLACE TRIGGER task_tags_changed AFTER UPDATE OF tags ON {schema}.task
    FOR EACH ROW WHEN (OLD.tags IS DISTINCT FROM NEW.tags) EXECUTE FUNCTION {schema}.index_tags();

-- add_convoys: rows for keys that nobody used before, in one order for all who ask.
CREATE OR REPLACE FUNCTION {schema}.add_convoys(keys text[], orderings text[], given bigint)
RETURNS void LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    WITH wanted AS (
        SELECT DISTINCT ON (w.key) w.key, w.ordering FROM unnest(keys, orderings) WITH ORDINALITY AS w(key, ordering, nth)
         WHERE NOT EXISTS (SELECT 1 FROM {schema}.convoy_tail AS t WHERE t.key = w.key)
         ORDER BY w.key, w.nth
    ), added AS (
        INSERT INTO {schema}.convoy_tail (key, ordering) SELECT w.key, w.ordering FROM wanted AS w
        ON CONFLICT (key) DO NOTHING RETURNING convoy_no, key, ordering
    )
    INSERT INTO {schema}.convoy (convoy_no, key, ordering, created_at)
    SELECT a.convoy_no, a.key, a.ordering, {schema}.now_at(given) FROM added AS a
$$;

-- keep_task: a new task in the transaction of whoever calls. Nothing is kept if the same id is there already.
-- It does what core.transitions.new_task and core.placing do; a test compares.
-- wanted_store: the id of the store that is meant; null: whichever this is. submission: the fields of commands.Submit, and
-- given (the clock of a test, else null).
-- verdict: created; same: the task was there, with known_id if it came under another id with the same sequence; workflow,
-- App, body, convoy, sequence, end mark: it was there, and this is what differs (as core.known says); used: another task has its sequence (known_id); refused: it
-- cannot stand in its convoy, whose end is tail; ledger: a ledger that is not opened keeps its id or sequence; store: another.
CREATE OR REPLACE FUNCTION {schema}.keep_task(
    wanted_store text, submission json, OUT task_no bigint, OUT verdict text, OUT known_id text, OUT tail json)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    asked record;
    known record;
    same_no bigint;                 -- of the task that has its sequence
    same_verdict text;
    judged record;
    ends {schema}.convoy_tail;
    key {schema}.convoy;
    at bigint;
    due bigint;
    due_by bigint;
    events text;
    first_head text;
    new_place bigint;
    new_rank bigint;
    turn text;
    is_refused boolean := false;
    pause {schema}.workflow_pause;
    is_paused boolean;
    touches_key boolean := false;
    tagged record;
    may_wait_for_ever CONSTANT boolean := current_setting('lock_timeout') = '0';
    control CONSTANT text := '[\u0001-\u001f\u007f-\u009f]';
BEGIN
    IF wanted_store IS NOT NULL
       AND wanted_store IS DISTINCT FROM (SELECT m.value FROM {schema}.meta AS m WHERE m.name = 'store_id') THEN
        verdict := 'store';
        RETURN;
    END IF;
    -- Raised, never lowered: the commit is to be as safe as every other of the store, and to say so if it is not.
    PERFORM set_config('synchronous_commit', 'on', true)
      WHERE current_setting('synchronous_commit') IN ('off', 'local', 'remote_write');
    PERFORM set_config('client_min_messages', 'warning', true) WHERE current_setting('client_min_messages') = 'error';
    IF may_wait_for_ever THEN
        PERFORM set_config('lock_timeout', '10s', true);
    END IF;
    SELECT * INTO asked FROM json_to_record(submission) AS fields(
        task_id text, workflow text, arguments text, body_hash text, policy text, priority smallint, delay double precision,
        complete_within double precision, seed bigint, reply_to text, actor text, given bigint,
        convoy text, sequence bigint, end_of_sequence boolean, app text, trace_context text, tags text);
    asked.app := coalesce(asked.app, ''); -- release 0.4.0 says none
    IF octet_length(asked.arguments) > 1000000 THEN
        RAISE EXCEPTION 'arguments have % bytes; the limit is 1000000', octet_length(asked.arguments)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'keep large data elsewhere and pass its address';
    ELSIF octet_length(asked.policy) > 4000 OR octet_length(asked.trace_context) > 1000 OR octet_length(asked.body_hash) > 255 THEN
        RAISE EXCEPTION 'policy, trace_context or body_hash is too long: the limits are 4000, 1000 and 255 bytes'
            USING ERRCODE = 'invalid_parameter_value', HINT = 'take what arriero itself sends';
    ELSIF NOT asked.complete_within BETWEEN 0 AND 3162240000 OR NOT asked.seed BETWEEN 0 AND 4611686018427387903
          OR NOT asked.sequence BETWEEN 1 AND 9007199254740992 THEN
        RAISE EXCEPTION 'complete_within is %, seed % and sequence %', asked.complete_within, asked.seed, asked.sequence
            USING ERRCODE = 'invalid_parameter_value',
            HINT = 'use 0 s to a century, a seed from 0 to 2^62 - 1, and a sequence from 1 to 9007199254740992';
    ELSIF coalesce(length(asked.workflow), 0) NOT BETWEEN 1 AND 255 OR asked.workflow ~ control
          OR length(asked.app) > 255 OR asked.app ~ control THEN
        RAISE EXCEPTION 'workflow and app have 1 to 255 characters without control characters'
            USING ERRCODE = 'invalid_parameter_value', HINT = 'use the names that the code declares';
    END IF;
    -- Who may only submit is trusted with nothing that others' rows, the clock or the history hang on.
    IF NOT has_table_privilege(session_user, '{schema}.task', 'INSERT') THEN
        IF asked.given IS NOT NULL THEN
            RAISE EXCEPTION 'given is for tests' USING ERRCODE = 'insufficient_privilege', HINT = 'leave it out';
        END IF;
        asked.actor := 'sql';
        SELECT * INTO judged FROM {schema}.judged_body(asked.arguments, false);
        IF judged.refusal IS NOT NULL OR judged.body IS NULL OR judged.body NOT LIKE '{%' THEN
            RAISE EXCEPTION '%', coalesce(judged.refusal, 'arguments are no JSON object')
                USING ERRCODE = 'invalid_parameter_value', HINT = coalesce(judged.hint, 'name each parameter of the workflow');
        END IF;
    END IF;
    IF coalesce(length(asked.task_id), 0) NOT BETWEEN 1 AND 255 OR asked.task_id ~ control
       OR length(asked.reply_to) NOT BETWEEN 1 AND 255 OR asked.reply_to ~ control
       OR length(asked.convoy) NOT BETWEEN 1 AND 255 OR asked.convoy ~ control THEN
        RAISE EXCEPTION 'task_id, convoy and reply_to have 1 to 255 characters without control characters'
            USING ERRCODE = 'invalid_parameter_value', HINT = 'use shorter texts, such as the key of your own row';
    ELSIF asked.convoy LIKE 'schedule %/%' AND asked.actor <> 'schedule' THEN
        RAISE EXCEPTION 'convoy % is kept for the runs of a schedule', quote_literal(asked.convoy)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'choose another key';
    ELSIF coalesce(asked.priority, -1) NOT BETWEEN 0 AND 9 OR NOT coalesce(asked.delay BETWEEN 0 AND 3162240000, false) THEN
        RAISE EXCEPTION 'priority is % and delay %', asked.priority, asked.delay
            USING ERRCODE = 'invalid_parameter_value', HINT = 'use a priority from 0 to 9, and a delay of 0 s to a century';
    END IF;
    IF asked.tags IS NOT NULL THEN
        SELECT * INTO tagged FROM {schema}.judged_tags(asked.tags);
        IF tagged.refusal IS NOT NULL THEN
            RAISE EXCEPTION '%', tagged.refusal USING ERRCODE = 'invalid_parameter_value', HINT = tagged.hint;
        END IF;
        asked.tags := tagged.tags;
    END IF;
    task_no := nextval('{schema}.task_number');
    IF asked.convoy IS NOT NULL THEN
        -- Ours until the commit: places are given in its order. Then the clock is read.
        -- A known id makes no key: it is refused, or its convoy is there.
        PERFORM {schema}.add_convoys(ARRAY[asked.convoy],
                                     ARRAY[CASE WHEN asked.sequence IS NULL THEN 'place' ELSE 'sequence' END], asked.given)
          WHERE NOT EXISTS (SELECT 1 FROM {schema}.task AS t WHERE t.task_id = asked.task_id);
        SELECT t.* INTO ends FROM {schema}.convoy_tail AS t WHERE t.key = asked.convoy FOR NO KEY UPDATE;
        tail := row_to_json(ends);
        new_place := ends.placed + 1;
        new_rank := coalesce(asked.sequence, new_place);
        is_refused := (ends.placed > 0 AND (ends.ordering = 'sequence') <> (asked.sequence IS NOT NULL))
            OR coalesce(ends.end_rank < new_rank OR (ends.end_rank IS NOT NULL AND asked.end_of_sequence), false)
            OR (coalesce(asked.end_of_sequence, false) AND new_rank < ends.last_rank);
        SELECT c.* INTO key FROM {schema}.convoy AS c WHERE c.convoy_no = ends.convoy_no;
        touches_key := NOT is_refused AND (ends.asks OR asked.sequence < key.expected);
        IF touches_key THEN
            SELECT c.* INTO key FROM {schema}.convoy AS c WHERE c.convoy_no = ends.convoy_no FOR NO KEY UPDATE;
        END IF;
        IF asked.sequence IS NOT NULL AND ends.ordering = 'sequence' THEN
            SELECT t.task_no, t.task_id,
                   CASE WHEN {schema}.is_kept(t.ledger_no) THEN 'ledger'
                        WHEN t.workflow = asked.workflow AND {schema}.is_another_app(t.app, asked.app) THEN 'App'
                        ELSE {schema}.what_differs(t.workflow, t.body_hash, coalesce(b.asked, b.arguments),
                                                   asked.workflow, asked.body_hash, asked.arguments) END
              INTO same_no, known_id, same_verdict
              FROM {schema}.task AS t LEFT JOIN {schema}.body AS b ON b.task_no = t.task_no
             WHERE t.convoy_no = ends.convoy_no AND t.sequence = asked.sequence;
        END IF;
        turn := 'waiting';
        IF touches_key AND ends.asks AND asked.sequence IS NULL AND key.state = 'idle' AND key.parked_at IS NULL
           AND key.look_at IS NULL THEN
            turn := 'open';
        END IF;
    END IF;
    -- As core.workflow_pauses.refuse_submission does.
    SELECT p.* INTO pause FROM {schema}.workflow_pause AS p
     WHERE p.workflow = asked.workflow AND (p.app = asked.app OR asked.app = '') AND p.state <> 'resuming'
     ORDER BY p.app, p.workflow LIMIT 1;
    is_paused := coalesce(pause.state = 'refusing', false);
    at := {schema}.now_at(asked.given);
    due := at + round(asked.delay * 1000000)::bigint;
    due_by := due + round(asked.complete_within * 1000000)::bigint;
    events := '[{"type":"task.submitted","workflow":' || to_json(asked.workflow) || ',"body":' || to_json(asked.body_hash)
        || ',"priority":' || asked.priority || ',"not_before":' || due
        || ',"complete_by":' || coalesce(due_by::text, 'null')
        || coalesce(',"reply_to":' || to_json(asked.reply_to), '')
        || coalesce(',"app":' || to_json(nullif(asked.app, '')), '')
        || coalesce(',"tags":' || asked.tags, '') || '}'
        || coalesce(',{"type":"convoy.placed","convoy":' || ends.convoy_no || ',"key":' || to_json(asked.convoy)
                    || ',"place":' || new_place || ',"rank":' || new_rank
                    || coalesce(',"sequence":' || asked.sequence, '')
                    || CASE WHEN asked.end_of_sequence THEN ',"end":true' ELSE '' END || '}', '')
        || CASE WHEN turn = 'open' THEN
               ',{"type":"convoy.opened","convoy":' || ends.convoy_no || ',"number":' || key.number + 1
               || ',"fence":' || key.fence + 1 || ',"rank":' || new_rank || ',"not_before":' || due || '}' ELSE '' END
        || coalesce(',{"type":"status.published","number":1,"kind":"received","queue":' || to_json(asked.reply_to) || '}', '')
        || ']';
    first_head := encode(
        sha256(convert_to('|' || task_no || '|1|' || at || '|' || asked.actor || '|' || events, 'UTF8')), 'hex');
    LOOP
        IF NOT is_refused AND NOT is_paused AND same_no IS NULL AND (asked.convoy IS NULL OR ends.convoy_no IS NOT NULL) THEN
            INSERT INTO {schema}.task AS t (
                task_no, task_id, workflow, state, priority, not_before, fence, revision, incarnation, failure_count,
                lost_count, opened_count, open_count, result_count, seed, policy, body_hash, submitted_at, complete_by, link,
                head, undoing, past_count, reply_to, status_count,
                convoy_no, place, sequence, rank, turn, due_at, app, trace_context, tags)
            VALUES (task_no, asked.task_id, asked.workflow, 'pending', asked.priority,
                    CASE WHEN turn = 'waiting' THEN NULL ELSE due END, 0, 0, 1, 0,
                    0, 0, 0, 0, asked.seed, asked.policy, asked.body_hash, at, due_by, 1,
                    first_head, false, 0, asked.reply_to, CASE WHEN asked.reply_to IS NULL THEN 0 ELSE 1 END,
                    ends.convoy_no, new_place, asked.sequence, new_rank, turn,
                    CASE WHEN turn = 'waiting' AND due > at THEN due END, asked.app, asked.trace_context, asked.tags)
            ON CONFLICT ON CONSTRAINT task_task_id_key DO NOTHING;
            IF FOUND THEN
                INSERT INTO {schema}.body (task_no, arguments) VALUES (task_no, asked.arguments);
                INSERT INTO {schema}.history (task_no, link, at, actor, events, hash)
                VALUES (task_no, 1, at, asked.actor, events, first_head);
                INSERT INTO {schema}.status (queue, task_no, number, incarnation, kind, at, data)
                SELECT asked.reply_to, task_no, 1, 1, 'received', at, '{}' WHERE asked.reply_to IS NOT NULL;
                UPDATE {schema}.convoy_tail AS t
                   SET ordering = CASE WHEN asked.sequence IS NULL THEN 'place' ELSE 'sequence' END,
                       placed = new_place,
                       last_rank = greatest(t.last_rank, new_rank),
                       end_rank = CASE WHEN asked.end_of_sequence THEN new_rank ELSE t.end_rank END,
                       asks = false
                 WHERE t.convoy_no = ends.convoy_no;
                IF touches_key THEN
                    UPDATE {schema}.convoy AS c
                       SET ordering = CASE WHEN asked.sequence IS NULL THEN 'place' ELSE 'sequence' END,
                           state = CASE WHEN turn = 'open' THEN 'open' ELSE c.state END,
                           open_task = CASE WHEN turn = 'open' THEN keep_task.task_no ELSE c.open_task END,
                           fence = c.fence + CASE WHEN turn = 'open' THEN 1 ELSE 0 END,
                           number = c.number + CASE WHEN turn = 'open' THEN 1 ELSE 0 END,
                           from_rank = CASE WHEN turn = 'open' THEN new_rank ELSE least(c.from_rank, new_rank) END,
                           reached = CASE WHEN turn = 'open' THEN greatest(c.reached, new_rank) ELSE c.reached END,
                           gap_since = CASE WHEN turn = 'open' THEN NULL ELSE c.gap_since END,
                           look_at = CASE WHEN turn = 'open' THEN NULL ELSE at END
                     WHERE c.convoy_no = ends.convoy_no;
                END IF;
                PERFORM pg_notify('{channel}', '');
                verdict := 'created';
                EXIT;
            END IF;
        END IF;
        -- Locked, so that the caller's commit confirms what another's lost answer may have left unconfirmed.
        SELECT t.task_no, t.workflow, t.body_hash, t.convoy_no, t.sequence, t.place, t.ledger_no, t.app,
               coalesce(b.asked, b.arguments) AS arguments
          INTO known
          FROM {schema}.task AS t LEFT JOIN {schema}.body AS b ON b.task_no = t.task_no
         WHERE t.task_id = asked.task_id FOR NO KEY UPDATE OF t;
        IF FOUND THEN
            task_no := known.task_no;
            known_id := NULL;
            verdict := {schema}.what_differs(known.workflow, known.body_hash, known.arguments,
                                             asked.workflow, asked.body_hash, asked.arguments);
            IF {schema}.is_kept(known.ledger_no) THEN
                verdict := 'ledger';
            ELSIF verdict <> 'workflow' AND {schema}.is_another_app(known.app, asked.app) THEN
                verdict := 'App';
            ELSIF verdict = 'same' AND (known.convoy_no IS DISTINCT FROM ends.convoy_no
                                        OR (asked.convoy IS NOT NULL AND ends.convoy_no IS NULL)) THEN
                verdict := 'convoy';
            ELSIF verdict = 'same' AND known.sequence IS DISTINCT FROM asked.sequence THEN
                verdict := 'sequence';
            ELSIF verdict = 'same' AND asked.end_of_sequence
                  AND ends.end_rank IS DISTINCT FROM coalesce(known.sequence, known.place) THEN
                verdict := 'end mark';
            END IF;
            EXIT;
        ELSIF same_no IS NOT NULL THEN
            task_no := same_no;
            verdict := CASE WHEN same_verdict = 'ledger' THEN 'ledger'
                            WHEN same_verdict <> 'same' THEN 'used'
                            WHEN asked.end_of_sequence AND ends.end_rank IS DISTINCT FROM asked.sequence THEN 'end mark'
                            ELSE 'same' END;
            EXIT;
        ELSIF is_refused THEN
            verdict := 'refused';
            EXIT;
        ELSIF is_paused THEN
            verdict := 'paused';
            tail := row_to_json(pause);
            EXIT;
        ELSIF asked.convoy IS NOT NULL AND ends.convoy_no IS NULL THEN
            -- Its id was known, or its key was there, and was purged just now.
            RAISE EXCEPTION 'convoy % was purged just now', quote_literal(asked.convoy)
                USING ERRCODE = 'serialization_failure', HINT = 'run the transaction again';
        END IF;
        -- It was purged in between.
    END LOOP;
    IF may_wait_for_ever THEN
        PERFORM set_config('lock_timeout', '0', true);
    END IF;
END
$$;

-- submit: start a task from any language, in the caller's transaction. Answers its id.
--   SELECT {schema}.submit('fulfil', '{"order": {"id": "1001", "pieces": 2}}', task_id => '1001');
-- workflow: a name that a process with its code has made known. arguments: a JSON object by the names of its parameters,
-- as text. The same id again with the same arguments changes nothing; with others it is an error, and so is whatever
-- Python refuses too.
-- convoy, sequence, end_of_sequence: as in Python. tags: a JSON object of texts, as text. app: the App that runs it; null: the only one that has the workflow.
CREATE OR REPLACE FUNCTION {schema}.submit(
    workflow text, arguments text, task_id text DEFAULT NULL, priority integer DEFAULT 5,
    delay_seconds double precision DEFAULT 0, reply_to text DEFAULT NULL,
    convoy text DEFAULT NULL, sequence bigint DEFAULT NULL, end_of_sequence boolean DEFAULT false, app text DEFAULT NULL,
    tags text DEFAULT NULL
) RETURNS text LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    known {schema}.workflow;
    whose {schema}.app_workflow;
    apps text[];
    judged record;
    kept record;
    id text := coalesce(task_id, gen_random_uuid()::text);
    control CONSTANT text := '[\u0001-\u001f\u007f-\u009f]';
    refusal CONSTANT text := 'invalid_parameter_value';
BEGIN
    SELECT * INTO judged FROM {schema}.judged_body(arguments, false);
    SELECT w.* INTO known FROM {schema}.workflow AS w WHERE w.name = workflow;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'workflow % is not known', quote_nullable(workflow) USING ERRCODE = refusal,
            HINT = 'look at the name, or start a process with its code once (arriero run MODULE:APP); known are '
                || coalesce((SELECT string_agg(w.name, ', ' ORDER BY w.name) FROM {schema}.workflow AS w), 'none');
    END IF;
    SELECT array_agg(a.app ORDER BY a.app) INTO apps FROM {schema}.app_workflow AS a WHERE a.name = workflow;
    SELECT a.* INTO whose FROM {schema}.app_workflow AS a WHERE a.name = workflow AND a.app = coalesce(app, apps[1]);
    IF app IS NULL AND cardinality(apps) > 1 THEN
        RAISE EXCEPTION 'workflow % is of several Apps: %', quote_literal(workflow), array_to_string(apps, ', ')
            USING ERRCODE = refusal, HINT = 'say which one runs it, as in app => ' || quote_literal(apps[1])
                || '; if one of them has another name now: arriero store assign --from OLD --to NEW';
    ELSIF app IS NOT NULL AND whose.app IS NULL THEN
        RAISE EXCEPTION 'App % is not known to have workflow %', quote_literal(app), quote_literal(workflow)
            USING ERRCODE = refusal, HINT = 'look at the name, or start a process of it once; known to have it are '
                || coalesce(array_to_string(apps, ', '), 'none');
    ELSIF judged.refusal IS NOT NULL THEN
        RAISE EXCEPTION '%', judged.refusal USING ERRCODE = refusal, HINT = judged.hint;
    ELSIF judged.body IS NULL OR judged.body NOT LIKE '{%' THEN
        RAISE EXCEPTION 'arguments are %, not a JSON object', coalesce('a JSON ' || json_typeof(judged.body::json), 'null')
            USING ERRCODE = refusal, HINT = 'name each parameter of the workflow, as in {"order": {"id": "1001"}}';
    ELSIF length(id) NOT BETWEEN 1 AND 255 OR id ~ control THEN
        RAISE EXCEPTION 'task_id % is not 1 to 255 characters without control characters', quote_literal(id)
            USING ERRCODE = refusal, HINT = 'use a shorter text, such as the key of your own row';
    ELSIF reply_to IS NOT NULL AND (length(reply_to) NOT BETWEEN 1 AND 255 OR reply_to ~ control) THEN
        RAISE EXCEPTION 'reply_to % is not 1 to 255 characters without control characters', quote_literal(reply_to)
            USING ERRCODE = refusal, HINT = 'name a reply queue, or leave it out';
    ELSIF convoy IS NOT NULL AND (length(convoy) NOT BETWEEN 1 AND 255 OR convoy ~ control) THEN
        RAISE EXCEPTION 'convoy % is not 1 to 255 characters without control characters', quote_literal(convoy)
            USING ERRCODE = refusal, HINT = 'use a shorter key, such as the customer''s number';
    ELSIF convoy LIKE 'schedule %/%' THEN
        RAISE EXCEPTION 'convoy % is kept for the runs of a schedule', quote_literal(convoy)
            USING ERRCODE = refusal, HINT = 'choose another key';
    ELSIF convoy IS NULL AND (sequence IS NOT NULL OR end_of_sequence) THEN
        RAISE EXCEPTION 'sequence or end_of_sequence is given without convoy'
            USING ERRCODE = refusal, HINT = 'name the convoy that it numbers';
    ELSIF sequence NOT BETWEEN 1 AND 9007199254740992 THEN
        RAISE EXCEPTION 'sequence is %', sequence
            USING ERRCODE = refusal, HINT = 'use a whole number from 1 to 9007199254740992';
    ELSIF priority IS NULL OR priority NOT BETWEEN 0 AND 9 THEN
        RAISE EXCEPTION 'priority is %', coalesce(priority::text, 'null')
            USING ERRCODE = refusal, HINT = 'use 0 to 9; 9 is claimed first';
    ELSIF delay_seconds IS NULL OR NOT delay_seconds BETWEEN 0 AND 3162240000 THEN
        RAISE EXCEPTION 'delay_seconds is %', coalesce(delay_seconds::text, 'null')
            USING ERRCODE = refusal, HINT = 'use 0 or more, and no more than a century (3162240000)';
    END IF;
    IF convoy IS NULL AND coalesce(whose.policy, known.policy)::json -> 'convoy' ->> 'handle_batch' IS NOT NULL THEN
        RAISE EXCEPTION 'workflow % handles batches of a convoy', quote_literal(workflow)
            USING ERRCODE = refusal, HINT = 'name the key, by convoy';
    END IF;
    SELECT * INTO kept FROM {schema}.keep_task(NULL, json_build_object(
        'task_id', id, 'workflow', workflow, 'arguments', judged.body,
        'body_hash', encode(sha256(convert_to(judged.body, 'UTF8')), 'hex'), 'policy', coalesce(whose.policy, known.policy),
        'priority', priority, 'delay', delay_seconds, 'complete_within', CASE WHEN whose.app IS NULL THEN known.complete_within ELSE whose.complete_within END,
        'seed', ('x' || substr(replace(gen_random_uuid()::text, '-', ''), 1, 15))::bit(60)::bigint,
        'reply_to', reply_to, 'actor', 'sql',
        'convoy', convoy, 'sequence', sequence, 'end_of_sequence', coalesce(end_of_sequence, false),
        'app', coalesce(whose.app, ''), 'tags', tags));
    IF kept.verdict = 'used' THEN
        RAISE EXCEPTION 'sequence % of convoy % is task %, which is another operation', sequence, quote_literal(convoy),
            quote_literal(kept.known_id)
            USING ERRCODE = 'unique_violation', HINT = 'number each operation of a convoy once';
    ELSIF kept.verdict = 'refused' THEN
        RAISE EXCEPTION 'convoy % cannot take the task: its end is %', quote_literal(convoy), kept.tail
            USING ERRCODE = refusal, HINT = 'it has ended, or is ordered otherwise (by place or by sequence)';
    ELSIF kept.verdict = 'paused' THEN
        RAISE EXCEPTION 'workflow % takes no new tasks: % paused it since %: %', quote_literal(workflow),
            kept.tail->>'paused_by',
            to_char(to_timestamp((kept.tail->>'paused_at')::bigint / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"'),
            kept.tail->>'pause_reason'
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'submit again once it is resumed: arriero workflow resume '
                || quote_ident(workflow) || ' --app-name ' || quote_ident(kept.tail->>'app') || ' --reason WHY';
    ELSIF kept.verdict = 'ledger' THEN
        RAISE EXCEPTION 'task % belongs to a ledger that is not complete', quote_literal(coalesce(kept.known_id, id))
            USING ERRCODE = 'unique_violation', HINT = 'submit the ledger again, or discard it with arriero ledger discard';
    ELSIF kept.verdict NOT IN ('created', 'same') THEN
        RAISE EXCEPTION 'task % exists with another %', quote_literal(id), kept.verdict
            USING ERRCODE = 'unique_violation', HINT = 'use another task_id, or submit the same again';
    END IF;
    RETURN coalesce(kept.known_id, id);
END
$$;

-- submit: the same for arguments that are jsonb already: numbers, repeated keys and the like are as jsonb made them.
CREATE OR REPLACE FUNCTION {schema}.submit(
    workflow text, arguments jsonb, task_id text DEFAULT NULL, priority integer DEFAULT 5,
    delay_seconds double precision DEFAULT 0, reply_to text DEFAULT NULL,
    convoy text DEFAULT NULL, sequence bigint DEFAULT NULL, end_of_sequence boolean DEFAULT false, app text DEFAULT NULL,
    tags text DEFAULT NULL
) RETURNS text LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT {schema}.submit(workflow, arguments::text, task_id, priority, delay_seconds, reply_to, convoy, sequence,
                           end_of_sequence, app, tags)
$$;

-- keep_signal: a signal to a task, in the transaction of whoever calls. It does what core.signals.send_signal does; a test compares.
-- wanted_store: as for keep_task. sending: task_id, name (of the waits that may take it), signal_id, value (JSON text), sent_by,
-- actor, app, and given (the clock of a test, else null).
-- verdict: kept; same: it was there under its signal_id; unknown: there is no such task; store: another one; else why it is
-- refused, with detail and the state of the task.
CREATE OR REPLACE FUNCTION {schema}.keep_signal(
    wanted_store text, sending json, OUT number integer, OUT verdict text, OUT detail text, OUT task_state text)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    asked record;
    judged record;
    task {schema}.task;
    known {schema}.signal;
    box record;
    at bigint;
    due bigint;
    wakes boolean;
    events text;
    may_wait_for_ever CONSTANT boolean := current_setting('lock_timeout') = '0';
    control CONSTANT text := '[\u0001-\u001f\u007f-\u009f]';
    value_bytes_max CONSTANT integer := 100000;
    inbox_max CONSTANT integer := 1000;
    inbox_bytes_max CONSTANT integer := 4000000;
    signals_max CONSTANT integer := 100000;
BEGIN
    IF wanted_store IS NOT NULL
       AND wanted_store IS DISTINCT FROM (SELECT m.value FROM {schema}.meta AS m WHERE m.name = 'store_id') THEN
        verdict := 'store';
        RETURN;
    END IF;
    -- Raised, never lowered: as in keep_task.
    PERFORM set_config('synchronous_commit', 'on', true)
      WHERE current_setting('synchronous_commit') IN ('off', 'local', 'remote_write');
    PERFORM set_config('client_min_messages', 'warning', true) WHERE current_setting('client_min_messages') = 'error';
    IF may_wait_for_ever THEN
        PERFORM set_config('lock_timeout', '10s', true);
    END IF;
    SELECT * INTO asked FROM json_to_record(sending) AS fields(
        task_id text, name text, signal_id text, value text, sent_by text, actor text, app text, given bigint);
    IF coalesce(length(asked.name), 0) NOT BETWEEN 1 AND 300 OR asked.name ~ control
       OR coalesce(length(asked.signal_id), 0) NOT BETWEEN 1 AND 255 OR asked.signal_id ~ control
       OR coalesce(length(asked.sent_by), 999) > 255 OR asked.sent_by ~ control THEN
        RAISE EXCEPTION 'name and signal_id have 1 to 255 characters without control characters, sent_by at most 255'
            USING ERRCODE = 'invalid_parameter_value', HINT = 'use shorter texts, such as the key of your own row';
    END IF;
    -- Who may only submit sends signals alone: answers and callbacks have doors of their own.
    IF NOT has_table_privilege(session_user, '{schema}.task', 'INSERT') THEN
        IF asked.given IS NOT NULL THEN
            RAISE EXCEPTION 'given is for tests' USING ERRCODE = 'insufficient_privilege', HINT = 'leave it out';
        ELSIF asked.name NOT LIKE 'signal:_%' OR strpos(asked.name, '#') > 0 THEN
            RAISE EXCEPTION '% is not the name of a signal', quote_literal(asked.name)
                USING ERRCODE = 'insufficient_privilege', HINT = 'only signals are sent by SQL';
        END IF;
        asked.actor := 'sql';
        SELECT * INTO judged FROM {schema}.judged_body(asked.value, false);
        IF judged.refusal IS NOT NULL OR judged.body IS NULL THEN
            RAISE EXCEPTION '%', coalesce(regexp_replace(judged.refusal, '^arguments', 'value'), 'value is null')
                USING ERRCODE = 'invalid_parameter_value', HINT = coalesce(judged.hint, 'send a JSON text');
        END IF;
        asked.value := judged.body;
    END IF;
    IF coalesce(octet_length(asked.value), value_bytes_max + 1) > value_bytes_max THEN
        RAISE EXCEPTION 'signal % has a value of % bytes; at most 100,000 are sent',
            split_part(asked.name, ':', 2), coalesce(to_char(octet_length(asked.value), 'FM999,999,999'), 'no')
            USING ERRCODE = 'invalid_parameter_value', HINT = 'keep it elsewhere and send its address';
    END IF;
    LOOP
        SELECT t.* INTO task FROM {schema}.task AS t WHERE t.task_id = asked.task_id FOR NO KEY UPDATE;
        -- While its lock was waited for, its run may have ended by ContinueAs: the next one has the id.
        EXIT WHEN FOUND OR NOT EXISTS (SELECT FROM {schema}.task AS t WHERE t.task_id = asked.task_id);
    END LOOP;
    IF task.task_no IS NULL OR {schema}.is_kept(task.ledger_no) THEN
        verdict := 'unknown';
    ELSIF task.state NOT IN ('pending', 'processing', 'held', 'processed', 'compensating', 'compensated') THEN
        RAISE EXCEPTION 'task % is in a state that cannot be read: %', quote_literal(asked.task_id), task.state
            USING ERRCODE = 'data_exception', HINT = 'an alert reports it; mend its row first';
    ELSE
        task_state := task.state;
        at := {schema}.now_at(asked.given); -- once it is locked: its last commit is not later
        SELECT s.* INTO known FROM {schema}.signal AS s
         WHERE s.task_no = task.task_no AND s.signal_id = asked.signal_id AND s.step IS DISTINCT FROM -1;
        IF known.number IS NULL AND task.first_no IS NOT NULL THEN
            SELECT s.* INTO known FROM {schema}.task AS run JOIN {schema}.signal AS s ON s.task_no = run.task_no
             WHERE run.first_no = task.first_no AND s.signal_id = asked.signal_id AND s.step IS NOT NULL AND s.step >= 0;
        END IF;
        SELECT coalesce(max(s.number), 0) AS last_number, count(*) FILTER (WHERE s.step IS NULL) AS waiting,
               coalesce(sum(octet_length(s.value)) FILTER (WHERE s.step IS NULL), 0) AS size
          INTO box FROM {schema}.signal AS s WHERE s.task_no = task.task_no;
        IF known.number IS NOT NULL AND known.name = asked.name AND known.value = asked.value
           AND known.task_no = task.task_no AND known.step BETWEEN 1 AND task.past_count THEN
            verdict := 'past_life';
            detail := 'it was taken before the task was undone and began again; to send it again, give it another signal_id';
        ELSIF known.number IS NOT NULL AND known.name = asked.name AND known.value = asked.value THEN
            verdict := 'same';
            number := known.number;
        ELSIF known.number IS NOT NULL THEN
            verdict := 'another_value';
            detail := 'another signal has the id ' || quote_literal(asked.signal_id) || '; give each its own signal_id';
        ELSIF task.next_no IS NOT NULL THEN
            verdict := 'continued';
            detail := 'this run of the task has ended: send it to the task';
        ELSIF {schema}.is_another_app(coalesce(asked.app, ''), task.app) THEN
            verdict := 'another_app';
            detail := 'the task is of App ' || quote_literal(task.app) || ', this is App ' || quote_literal(asked.app);
        ELSIF task.state IN ('compensating', 'compensated') THEN
            verdict := 'undone';
            detail := 'the task is ' || task.state || ': its code receives nothing any longer';
        ELSIF task.state = 'processed' THEN
            verdict := 'ended';
            detail := 'the task has ended: its code receives nothing any longer';
        ELSIF task.batch_no <> task.task_no THEN
            verdict := 'in_batch';
            detail := 'its message is in the batch of another task, number ' || task.batch_no
                || ', whose code runs: send it to that one';
        ELSIF box.waiting >= inbox_max OR box.size + octet_length(asked.value) > inbox_bytes_max THEN
            verdict := 'inbox_full';
            detail := to_char(box.waiting, 'FM999,999,999') || ' signal' || CASE WHEN box.waiting = 1 THEN '' ELSE 's' END
                || ' with ' || to_char(box.size, 'FM999,999,999') || ' bytes wait to be taken; at most 1,000 with 4,000,000 bytes may';
        ELSIF box.last_number >= signals_max THEN
            verdict := 'too_many';
            detail := 'the task has had 100,000 signals, which is the limit';
        END IF;
    END IF;
    IF verdict IS NULL THEN
        verdict := 'kept';
        number := box.last_number + 1;
        -- As core.signals.send_signal and Writer.wake_task: who holds the task may be about to open a wait.
        wakes := task.state IN ('pending', 'processing') AND (task.locked_by IS NOT NULL OR EXISTS (
            SELECT FROM {schema}.step AS s
             WHERE s.step_no >= task.task_no << 20 AND s.step_no < (task.task_no + 1) << 20
               AND s.state IN ('pending', 'running') AND asked.name IN (s.name, s.name || s.key)
               AND (s.not_before IS NULL OR at < s.not_before)));
        due := task.not_before;
        IF wakes AND task.locked_by IS NULL THEN
            due := least(coalesce(due, at), at);
        END IF;
        IF task.turn = 'waiting' THEN
            due := NULL;
        ELSIF due IS NOT NULL AND task.snoozed_until IS NOT NULL THEN
            due := greatest(due, task.snoozed_until);
        END IF;
        events := '[{"type":"signal.sent","number":' || number || ',"name":' || to_json(asked.name) || ',"signal_id":'
            || to_json(asked.signal_id) || ',"value":"' || encode(sha256(convert_to(asked.value, 'UTF8')), 'hex') || '"'
            || CASE WHEN asked.sent_by = '' THEN '' ELSE ',"by":' || to_json(asked.sent_by) END || '}]';
        INSERT INTO {schema}.signal (task_no, number, name, signal_id, value, sent_by, sent_at, wants_reply)
        VALUES (task.task_no, number, asked.name, asked.signal_id, asked.value, asked.sent_by, at, false);
        task.head := encode(sha256(convert_to(
            task.head || '|' || task.task_no || '|' || task.link + 1 || '|' || at || '|' || asked.actor || '|' || events,
            'UTF8')), 'hex');
        INSERT INTO {schema}.history (task_no, link, at, actor, events, hash)
        VALUES (task.task_no, task.link + 1, at, asked.actor, events, task.head);
        UPDATE {schema}.task AS t
           SET inbox = t.inbox + 1, revision = t.revision + 1, link = t.link + 1, head = task.head, not_before = due,
               unseen_since = CASE WHEN wakes THEN coalesce(t.unseen_since, at) ELSE t.unseen_since END
         WHERE t.task_no = task.task_no;
        PERFORM pg_notify('{channel}', '');
    END IF;
    IF may_wait_for_ever THEN
        PERFORM set_config('lock_timeout', '0', true);
    END IF;
END
$$;

-- signal: send a signal to a task from any language, in the caller's transaction. Answers its number in the task.
--   SELECT {schema}.signal(task_id => '1001', name => 'approved', value => '{"by": "ana"}', signal_id => 'approval-7');
-- value: JSON text; the code of the task checks its type, and sets aside what it cannot read. signal_id: sent again under it,
-- the signal changes nothing; null: a new one. sent_by: who sends it, for the history. app: whose task it must be; null: any.
CREATE OR REPLACE FUNCTION {schema}.signal(
    task_id text, name text, value text, signal_id text DEFAULT NULL, sent_by text DEFAULT NULL, app text DEFAULT NULL
) RETURNS integer LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    judged record;
    kept record;
    control CONSTANT text := '[\u0001-\u001f\u007f-\u009f]';
    refusal CONSTANT text := 'invalid_parameter_value';
BEGIN
    SELECT * INTO judged FROM {schema}.judged_body(value, false);
    IF judged.refusal IS NOT NULL OR judged.body IS NULL THEN
        RAISE EXCEPTION '%', coalesce(regexp_replace(judged.refusal, '^arguments', 'value'), 'value is null')
            USING ERRCODE = refusal, HINT = coalesce(judged.hint, 'send a JSON text, as in {"by": "ana"}');
    ELSIF coalesce(length(name), 0) NOT BETWEEN 1 AND 255 OR name ~ control OR strpos(name, '#') > 0 THEN
        RAISE EXCEPTION 'name % is not 1 to 255 characters without control characters and without #', quote_nullable(name)
            USING ERRCODE = refusal, HINT = 'use the name that the code gives its Signal';
    ELSIF length(signal_id) NOT BETWEEN 1 AND 255 OR signal_id ~ control THEN
        RAISE EXCEPTION 'signal_id % is not 1 to 255 characters without control characters', quote_literal(signal_id)
            USING ERRCODE = refusal, HINT = 'use a shorter text, such as the key of your own row';
    ELSIF length(sent_by) > 255 OR sent_by ~ control THEN
        RAISE EXCEPTION 'sent_by % is not up to 255 characters without control characters', quote_literal(sent_by)
            USING ERRCODE = refusal, HINT = 'use a shorter name';
    END IF;
    SELECT * INTO kept FROM {schema}.keep_signal(NULL, json_build_object(
        'task_id', task_id, 'name', 'signal:' || name, 'signal_id', coalesce(signal_id, gen_random_uuid()::text),
        'value', judged.body, 'sent_by', coalesce(sent_by, ''), 'actor', 'sql', 'app', coalesce(app, '')));
    IF kept.verdict = 'unknown' THEN
        RAISE EXCEPTION 'there is no task %', quote_nullable(task_id)
            USING ERRCODE = 'no_data_found', HINT = 'look at the id; its submission may not be committed yet';
    ELSIF kept.verdict NOT IN ('kept', 'same') THEN
        RAISE EXCEPTION 'signal % to task % is refused: %', name, quote_literal(task_id), kept.detail
            USING ERRCODE = refusal, HINT = 'look at the task: arriero explain ' || task_id;
    END IF;
    RETURN kept.number;
END
$$;

-- signal: the same for a value that is jsonb already.
CREATE OR REPLACE FUNCTION {schema}.signal(
    task_id text, name text, value jsonb, signal_id text DEFAULT NULL, sent_by text DEFAULT NULL, app text DEFAULT NULL
) RETURNS integer LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT {schema}.signal(task_id, name, value::text, signal_id, sent_by, app)
$$;

-- The doors of submitters work with their owner's rights, so that a role may submit without any right on the tables; their
-- search_path is fixed above. No function is everybody's, and who could write the tables keeps them all.
DO $rights$
DECLARE
    one record;
BEGIN
    FOR one IN SELECT p.oid::regprocedure AS called, p.proname IN ('submit', 'keep_task', 'signal', 'keep_signal') AS is_door,
                      p.proname IN ('submit', 'keep_task', 'signal', 'keep_signal', 'judged_body', 'judged_tags', 'number_in_python',
                                    'is_same_body') AS reads_texts
                 FROM pg_catalog.pg_proc AS p WHERE p.pronamespace = '{schema}'::regnamespace
    LOOP
        IF one.is_door THEN
            EXECUTE format('ALTER FUNCTION %s SECURITY DEFINER', one.called);
        END IF;
        IF one.reads_texts THEN  -- the session's own setting must not change how they are read
            EXECUTE format('ALTER FUNCTION %s SET standard_conforming_strings = on', one.called);
        END IF;
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', one.called);
    END LOOP;
    FOR one IN SELECT DISTINCT given.grantee::regrole AS role
                 FROM pg_catalog.pg_class AS c, LATERAL pg_catalog.aclexplode(c.relacl) AS given
                WHERE c.oid = '{schema}.task'::regclass AND given.privilege_type = 'INSERT'
                  AND given.grantee NOT IN (0, c.relowner)
    LOOP
        EXECUTE format('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} TO %s', one.role);
    END LOOP;
    FOR one IN SELECT p.oid::regprocedure AS called, may.submit AS role
                 FROM pg_catalog.pg_proc AS p,
                      string_to_table(current_setting('arriero.submitters', true), E'\n') AS may(submit)
                WHERE p.pronamespace = '{schema}'::regnamespace AND p.proname = 'submit' AND may.submit <> ''
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s', one.called, one.role);
    END LOOP;
END
$rights$;
