-- +goose Up
-- Retention: the place of this step; filled before it is released.
SELECT 1;

-- +goose Down
-- A shard is never migrated down (contract, section 1).
