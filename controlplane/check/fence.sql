SELECT cell_id, fence_version, state, instance_group FROM cellquota.fence;
