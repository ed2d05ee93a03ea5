SELECT paused, version, reason FROM cellquota.cell_switch;
