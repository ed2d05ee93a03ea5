SELECT fence_version, state, at FROM cellquota.v_fence_history ORDER BY fence_version, at;
