SELECT f.cell_id, f.fence_version, f.messages_from, f.state, f.instance_group, f.state_since, cellquota.now(),
       t.term_count, t.term_id
FROM cellquota.fence f CROSS JOIN cellquota.term t;
