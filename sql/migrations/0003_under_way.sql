-- Whether a run has begun to change notes and the plan of its HEAD is not carried out yet. Without it a HEAD that went
-- on and came back to the recorded commit in the middle of a run would look as if there were nothing to do.
ALTER TABLE sync_state ADD COLUMN under_way BOOLEAN NOT NULL DEFAULT FALSE;
