-- +goose Up
-- Witnesses of a shard's past and its recovery: the place of this step; filled before it is released.
SELECT 1;

-- +goose Down
-- A shard is never migrated down (contract, section 1).
