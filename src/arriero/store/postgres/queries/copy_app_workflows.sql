-- copy_app_workflows: the workflows of an App are those of another name too, where that has none of the same name.
-- Params: app, new.
INSERT INTO {schema}.app_workflow (name, app, policy, complete_within)
SELECT name, %(new)s::text, policy, complete_within FROM {schema}.app_workflow WHERE app = %(app)s
    ON CONFLICT (name, app) DO NOTHING
