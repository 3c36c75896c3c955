(** Every theorem of the page, and what it rests on. *)
From Panstream Require Import Bit Laplace Release Windows TwoParty.

Print Assumptions joint_loss.
Print Assumptions joint_loss_of_releases.
Print Assumptions mixture.
Print Assumptions tree_loss.
Print Assumptions tree_loss_of_unit.
Print Assumptions factorises.
Print Assumptions person_period.
Print Assumptions step_is_right.
Print Assumptions view_a_has_one_cause.
Print Assumptions view_b_has_one_cause.
Print Assumptions views_have_one_cause.
Print Assumptions sum_is_right.
Print Assumptions view_second_has_one_cause.
Print Assumptions answer_is_right.
Print Assumptions answer_view_a_has_one_cause.
Print Assumptions answer_view_b_has_one_cause.
