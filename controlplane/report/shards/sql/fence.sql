SELECT cell_id, fence_version, messages_from, state, instance_group, term FROM cellquota.v_fence;
