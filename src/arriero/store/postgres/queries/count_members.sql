-- count_members: of some convoys how many tasks wait, and how many were set aside and are still in error.
-- Params: convoy_nos.
SELECT wanted.convoy_no,
       (SELECT count(*) FROM {schema}.task AS t WHERE t.turn = 'waiting' AND t.convoy_no = wanted.convoy_no),
       (SELECT count(*) FROM {schema}.task AS t
         WHERE t.turn = 'set_aside' AND t.convoy_no = wanted.convoy_no AND t.state = 'error')
  FROM unnest(%(convoy_nos)s::bigint[]) AS wanted (convoy_no)
