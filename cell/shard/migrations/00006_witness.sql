-- +goose Up
-- Witnesses of a shard's past: what everybody who saw this shard after a commit remembers of it, so that
-- a standby promoted without the tail, a restored backup or an empty directory is known before one write.

-- identity names this PostgreSQL's history: "SYSTEM/TIMELINE". The timeline is read from the name of the
-- current WAL file where that is possible: after a promotion the control file's checkpoint may still name
-- the old one. A server in recovery has no history of its own yet and says so.
-- +goose StatementBegin
CREATE FUNCTION cellquota.identity() RETURNS text
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = cellquota, pg_temp AS $$
  SELECT (SELECT system_identifier::text FROM pg_control_system()) || '/' ||
    CASE WHEN pg_is_in_recovery() THEN 'recovering'
         ELSE (('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int)::text END
$$;
-- +goose StatementEnd

-- witness reads how far this shard has come, in one snapshot. Rows of settled campaigns are left out: they may be
-- deleted; the campaigns are named, so that nobody misses them. The names are those of the message
-- cellquota.v1.ShardWitness, in which it travels.
-- +goose StatementBegin
CREATE FUNCTION cellquota.witness() RETURNS jsonb
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = cellquota, pg_temp AS $$
  SELECT jsonb_build_object(
    'identity', cellquota.identity(),
    'fence_version', coalesce((SELECT fence_version FROM cellquota.fence), 0),
    'stocks', coalesce((SELECT jsonb_agg(jsonb_build_object('campaign_id', s.campaign_id, 'sku_id', s.sku_id, 'adjustment_version', s.adjustment_version,
        'last_number', s.last_number, 'stock_version', s.version)) FROM cellquota.stock s JOIN cellquota.campaigns c USING (campaign_id) WHERE c.state <> 'SETTLED'), '[]'),
    'routes', coalesce((SELECT jsonb_agg(jsonb_build_object('campaign_id', b.campaign_id, 'route_version', b.newest)) FROM
        (SELECT campaign_id, max(moved_version) AS newest FROM cellquota.buckets GROUP BY campaign_id) b JOIN cellquota.campaigns c USING (campaign_id) WHERE c.state <> 'SETTLED'), '[]'),
    'builds', coalesce((SELECT jsonb_agg(jsonb_build_object('campaign_id', m.campaign_id, 'scope', m.scope_key, 'fence_version', m.minted_fence, 'count', m.minted_count))
        FROM cellquota.mirrors m JOIN cellquota.campaigns c USING (campaign_id) WHERE c.state <> 'SETTLED'), '[]'),
    'positions', coalesce((SELECT jsonb_agg(jsonb_build_object('topic', topic, 'partition', partition, 'topic_id', topic_id, 'next_offset', next_offset, 'leader_epoch', leader_epoch))
        FROM cellquota.positions), '[]'),
    'settled_campaigns', coalesce((SELECT jsonb_agg(campaign_id) FROM cellquota.campaigns WHERE state = 'SETTLED'), '[]'))
$$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION cellquota.identity(), cellquota.witness() FROM PUBLIC;

-- +goose Down
-- A shard is never migrated down (contract, section 1).
