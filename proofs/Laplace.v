(** Discrete Laplace noise with rational ratio q = e^(-kappa): weights q^|k|, whose normaliser is the same in all worlds.

    [tree_loss]: the joint loss of one copy and all outputs of sums that start as noise and are released with fresh
    noise (docs/proofs/continual-tree.md, Theorem 1). Noise has infinite support, so the theorem is about the ratio of
    weights, view by view; sums over any set of views have the same bound. *)

Require Import QArith ZArith Lqa List Lia.
From Panstream Require Import Bit.
Import ListNotations.
Open Scope Q_scope.

Definition lap (q : Q) (k : Z) : Q := pow q (Z.abs_nat k).

Lemma pow_positive (q : Q) (n : nat) : 0 < q -> 0 < pow q n.
Proof. intros H; induction n; simpl; [lra | nra]. Qed.

Lemma pow_inverse (q : Q) (n : nat) : 0 < q -> pow (/ q) n * pow q n == 1.
Proof.
  intros H. assert (E : / q * q == 1) by (rewrite Qmult_comm; apply Qmult_inv_r; lra).
  induction n; simpl; [ring |].
  transitivity ((/ q * q) * (pow (/ q) n * pow q n)); [ring | rewrite E, IHn; ring].
Qed.

Lemma pow_decreases (q : Q) (m n : nat) : 0 < q <= 1 -> (m <= n)%nat -> pow q n <= pow q m.
Proof.
  intros H L. induction L; [lra |].
  assert (P := pow_positive q m0 (proj1 H)). simpl. nra.
Qed.

Lemma inverse_at_least_one (q : Q) : 0 < q <= 1 -> 1 <= / q.
Proof.
  intros H. assert (E : q * / q == 1) by (apply Qmult_inv_r; lra).
  assert (0 < / q) by (apply Qinv_lt_0_compat; lra). nra.
Qed.

(** Moving a count by d changes a weight by at most q^-|d|. *)
Lemma lap_moves (q : Q) (k k' : Z) : 0 < q <= 1 -> lap q k <= pow (/ q) (Z.abs_nat (k - k')) * lap q k'.
Proof.
  intros H. unfold lap. set (d := Z.abs_nat (k - k')).
  assert (L : (Z.abs_nat k' <= d + Z.abs_nat k)%nat) by (unfold d; lia).
  assert (M := pow_decreases q _ _ H L). rewrite pow_add in M.
  assert (I := pow_inverse q d (proj1 H)).
  assert (P : 0 < pow (/ q) d) by (apply pow_positive; assert (1 <= / q) by (apply inverse_at_least_one; lra); lra).
  assert (T : pow (/ q) d * (pow q d * pow q (Z.abs_nat k)) <= pow (/ q) d * pow q (Z.abs_nat k'))
    by (apply times_le; [lra | exact M]).
  assert (E : pow (/ q) d * (pow q d * pow q (Z.abs_nat k)) == pow q (Z.abs_nat k)).
  { transitivity ((pow (/ q) d * pow q d) * pow q (Z.abs_nat k)); [ring | rewrite I; ring]. }
  lra.
Qed.

(** ** Trees of noisy sums *)

(** One node: what the rows of one unit add to it before and after the copy. *)
Record moved := Moved { before : Z; after : Z }.

(** What a view shows of a node: its accumulator at the copy, and its released sum. [fixed] and [later] are what all
    other rows add before and after the copy. *)
Record shown := Shown { state : Z; output : Z; fixed : Z; later : Z }.

Definition node_weight (q : Q) (v : shown) (m : moved) : Q :=
  lap q (state v - fixed v - before m) * lap q (output v - state v - later v - after m).

(** The nodes of a tree have independent noise. *)
Fixpoint weight (q : Q) (v : list shown) (ms : list moved) : Q :=
  match v, ms with
  | one :: v, m :: ms => node_weight q one m * weight q v ms
  | _, _ => 1
  end.

Definition distance (m m' : moved) : nat := Z.abs_nat (before m - before m') + Z.abs_nat (after m - after m').

Fixpoint distances (ms ms' : list moved) : nat :=
  match ms, ms' with m :: ms, m' :: ms' => distance m m' + distances ms ms' | _, _ => 0 end.

Lemma node_weight_positive (q : Q) (v : shown) (m : moved) : 0 < q -> 0 < node_weight q v m.
Proof.
  intros H. unfold node_weight, lap.
  set (a := Z.abs_nat (state v - fixed v - before m)). set (b := Z.abs_nat (output v - state v - later v - after m)).
  assert (A := pow_positive q a H). assert (B := pow_positive q b H). nra.
Qed.

Lemma weight_positive (q : Q) (v : list shown) : forall ms, 0 < q -> 0 < weight q v ms.
Proof.
  induction v as [| one v IH]; intros [| m ms] H; simpl; try lra.
  assert (A := node_weight_positive q one m H). assert (B := IH ms H). nra.
Qed.

Lemma node_loss (q : Q) (v : shown) (m m' : moved) :
  0 < q <= 1 -> node_weight q v m <= pow (/ q) (distance m m') * node_weight q v m'.
Proof.
  intros H. unfold node_weight, distance. rewrite pow_add.
  set (k1 := (state v - fixed v - before m)%Z). set (k1' := (state v - fixed v - before m')%Z).
  set (k2 := (output v - state v - later v - after m)%Z). set (k2' := (output v - state v - later v - after m')%Z).
  assert (A := lap_moves q k1 k1' H). assert (B := lap_moves q k2 k2' H).
  replace (Z.abs_nat (k1 - k1')) with (Z.abs_nat (before m - before m')) in A by (unfold k1, k1'; lia).
  replace (Z.abs_nat (k2 - k2')) with (Z.abs_nat (after m - after m')) in B by (unfold k2, k2'; lia).
  set (f := pow (/ q) (Z.abs_nat (before m - before m'))) in *.
  set (g := pow (/ q) (Z.abs_nat (after m - after m'))) in *.
  assert (P1 : 0 < lap q k1) by (apply pow_positive; lra). assert (P2 : 0 < lap q k2) by (apply pow_positive; lra).
  assert (X : lap q k1 * lap q k2 <= lap q k1 * (g * lap q k2')) by (apply times_le; lra).
  assert (Y : (g * lap q k2') * lap q k1 <= (g * lap q k2') * (f * lap q k1')) by (apply times_le; lra).
  lra.
Qed.

(** One copy at any time and all outputs. Where every row of a unit enters one node on each of h levels and moves it
    by at most Delta, its at most K rows have distances of h * K * Delta. *)
Theorem tree_loss (q : Q) (v : list shown) : forall ms ms' : list moved,
  0 < q <= 1 -> length ms = length ms' ->
  weight q v ms <= pow (/ q) (distances ms ms') * weight q v ms'.
Proof.
  induction v as [| one v IH]; intros [| m ms] [| m' ms'] H L; simpl in L; try discriminate; simpl; try lra.
  - assert (1 <= pow (/ q) (distance m m' + distances ms ms'))
      by (apply pow_at_least_one, inverse_at_least_one; exact H). lra.
  - injection L as L. specialize (IH ms ms' H L). rewrite pow_add.
    assert (N := node_loss q one m m' H).
    assert (P := node_weight_positive q one m (proj1 H)). assert (P' := weight_positive q v ms' (proj1 H)).
    set (f := pow (/ q) (distance m m')) in *. set (g := pow (/ q) (distances ms ms')) in *.
    assert (G : 0 < g) by (apply pow_positive; assert (1 <= / q) by (apply inverse_at_least_one; exact H); lra).
    assert (X : node_weight q one m * weight q v ms <= node_weight q one m * (g * weight q v ms'))
      by (apply times_le; lra).
    assert (Y : (g * weight q v ms') * node_weight q one m <= (g * weight q v ms') * (f * node_weight q one m'))
      by (apply times_le; [nra | exact N]).
    lra.
Qed.

(** The rows of one unit, all there or none: every level holds at most [bound] of what they add, whether it was added
    before or after the copy. *)
Definition present_within (bound : nat) (m : moved) : Prop := (Z.abs_nat (before m) + Z.abs_nat (after m) <= bound)%nat.
Definition absent (ms : list moved) : list moved := map (fun _ => Moved 0 0) ms.

Lemma distances_absent (bound : nat) (ms : list moved) :
  Forall (present_within bound) ms ->
  (distances ms (absent ms) <= length ms * bound)%nat /\ (distances (absent ms) ms <= length ms * bound)%nat.
Proof.
  induction 1 as [| m ms B _ [IH1 IH2]]; simpl; [lia |].
  unfold present_within in B. unfold distance; simpl. split; lia.
Qed.

Corollary tree_loss_of_unit (q : Q) (v : list shown) (ms : list moved) (bound : nat) :
  0 < q <= 1 -> Forall (present_within bound) ms ->
  weight q v ms <= pow (/ q) (length ms * bound) * weight q v (absent ms) /\
  weight q v (absent ms) <= pow (/ q) (length ms * bound) * weight q v ms.
Proof.
  intros H B. destruct (distances_absent bound ms B) as [D1 D2].
  assert (L : length ms = length (absent ms)) by (unfold absent; rewrite map_length; reflexivity).
  assert (T1 := tree_loss q v ms (absent ms) H L). assert (T2 := tree_loss q v (absent ms) ms H (eq_sym L)).
  assert (I := inverse_at_least_one q H).
  assert (M : forall n, (n <= length ms * bound)%nat -> pow (/ q) n <= pow (/ q) (length ms * bound)).
  { intros n N. replace (length ms * bound)%nat with (n + (length ms * bound - n))%nat by lia. rewrite pow_add.
    assert (A := pow_at_least_one (/ q) n I). assert (C := pow_at_least_one (/ q) (length ms * bound - n) I). nra. }
  assert (M1 := M _ D1). assert (M2 := M _ D2).
  assert (P := weight_positive q v ms (proj1 H)). assert (P' := weight_positive q v (absent ms) (proj1 H)).
  split; nra.
Qed.

(** Attained: one node, one row before the copy, and a view that lies beyond. *)
Example attained (q : Q) : 0 < q <= 1 ->
  weight q [Shown 1 1 0 0] [Moved 1 0] == / q * weight q [Shown 1 1 0 0] (absent [Moved 1 0]).
Proof.
  intros H. assert (E : q * / q == 1) by (apply Qmult_inv_r; lra).
  unfold weight, node_weight, lap, absent; simpl. rewrite !Qmult_1_r. rewrite Qmult_comm, E. reflexivity.
Qed.
