(** The joint loss of one bit in a sum with discrete Laplace noise, whatever the other bits are.

    A view shows numbers: a release [Number y s] is y where the bits of all others add up to s, and [Bit b] is the copy.
    Its likelihood in a world is a sum over the values of the user's bit. [joint_loss_of_releases] bounds the ratio of
    two worlds for one view and all histories of the others' bits; [mixture] extends a bound of single views to any
    finite set of views and to any distribution of the others' bits. *)

Require Import QArith ZArith Lqa List Lia.
From Panstream Require Import Bit Laplace.
Import ListNotations.
Open Scope Q_scope.

Inductive shown := Number (y s : Z) | Bit (b : bool).

(** Unnormalised probabilities that the bit is 0 or 1. *)
Record bits := Bits { zero : Q; one : Q }.

Definition toss (p : Q) (w : bits) : bits := Bits ((1 - p) * (zero w + one w)) (p * (zero w + one w)).

Definition see (q : Q) (o : shown) (w : bits) : bits :=
  match o with
  | Number y s => Bits (lap q (y - s) * zero w) (lap q (y - s - 1) * one w)
  | Bit true => Bits 0 (one w)
  | Bit false => Bits (zero w) 0
  end.

Definition go (q p : Q) (w : bits) (s : bool * shown) : bits := see q (snd s) (if fst s then toss p w else w).

Definition chance (q p0 p1 : Q) (world : list (bool * shown)) : Q :=
  let final := fold_left (go q p1) world (Bits (1 - p0) p0) in zero final + one final.

(** The same view relative to the weights of the bit that the copy shows. *)
Definition relative (b : bool) (o : shown) : observation :=
  match o with
  | Bit _ => Copy
  | Number y s => if b then (if (s <? y)%Z then Down else Up) else (if (s <? y)%Z then Up else Down)
  end.

Definition shows (b : bool) (o : shown) : Prop := match o with Bit b' => b' = b | Number _ _ => True end.

(** The weight of a release if the bit is the one that the copy shows. *)
Definition base (q : Q) (b : bool) (o : shown) : Q :=
  match o with Bit _ => 1 | Number y s => lap q (y - s - (if b then 1 else 0)) end.

Fixpoint product (q : Q) (b : bool) (v : list shown) : Q :=
  match v with [] => 1 | o :: v => base q b o * product q b v end.

Definition translate (b : bool) (s : bool * shown) : step := (fst s, relative b (snd s)).

Lemma lap_up (q : Q) (k : Z) : 0 < q -> (0 < k)%Z -> lap q (k - 1) == / q * lap q k.
Proof.
  intros H P. unfold lap. replace (Z.abs_nat k) with (S (Z.abs_nat (k - 1))) by lia. simpl.
  transitivity ((/ q * q) * pow q (Z.abs_nat (k - 1))); [| ring].
  assert (E : / q * q == 1) by (rewrite Qmult_comm; apply Qmult_inv_r; lra). rewrite E. ring.
Qed.

Lemma lap_down (q : Q) (k : Z) : 0 < q -> (k <= 0)%Z -> lap q (k - 1) == q * lap q k.
Proof. intros H P. unfold lap. replace (Z.abs_nat (k - 1)) with (S (Z.abs_nat k)) by lia. simpl. reflexivity. Qed.

(** One value's weights against the other's. *)
Definition matches (b : bool) (c : Q) (w : bits) (r : weights) : Prop :=
  (if b then one w else zero w) == c * same r /\ (if b then zero w else one w) == c * other r.

Lemma matches_step (q p : Q) (b : bool) (s : bool * shown) (c : Q) (w : bits) (r : weights) :
  0 < q <= 1 -> shows b (snd s) -> matches b c w r ->
  matches b (c * base q b (snd s)) (go q p w s) (apply (/ q) (if b then 1 - p else p) r (translate b s)).
Proof.
  intros H Sh M. destruct s as [arrived o]. simpl in Sh.
  assert (M1 : matches b c (if arrived then toss p w else w) (if arrived then draw (if b then 1 - p else p) r else r)).
  { destruct arrived; [| exact M]. unfold matches, toss, draw in *; destruct b; simpl in *;
    destruct M as [M1 M2]; split; rewrite M1, M2; ring. }
  unfold go, apply, translate; simpl.
  set (w1 := if arrived then toss p w else w) in *.
  set (r1 := if arrived then draw (if b then 1 - p else p) r else r) in *.
  assert (Q : / q * q == 1) by (rewrite Qmult_comm; apply Qmult_inv_r; lra).
  assert (QQ : / / q == q) by apply Qinv_involutive.
  destruct M1 as [MS MO]. destruct o as [y s | b']; simpl in *.
  - destruct (Z.ltb_spec s y) as [L | L]; destruct b; simpl in *; unfold matches; simpl; rewrite MS, MO.
    + split; [ring |]. rewrite QQ.
      assert (E := lap_up q (y - s) (proj1 H) ltac:(lia)).
      transitivity (c * (q * (/ q * lap q (y - s))) * other r1).
      * transitivity ((/ q * q) * (lap q (y - s) * (c * other r1))); [rewrite Q; ring | ring].
      * rewrite <- E. ring.
    + replace (y - s - 0)%Z with (y - s)%Z by lia. split; [ring |].
      rewrite (lap_up q (y - s) (proj1 H) ltac:(lia)). ring.
    + split; [ring |].
      assert (E := lap_down q (y - s) (proj1 H) ltac:(lia)). rewrite E.
      transitivity ((/ q * q) * (lap q (y - s) * (c * other r1))); [rewrite Q; ring | ring].
    + replace (y - s - 0)%Z with (y - s)%Z by lia. split; [ring |]. rewrite QQ.
      rewrite (lap_down q (y - s) (proj1 H) ltac:(lia)). ring.
  - subst b'. destruct b; simpl in *; unfold matches; simpl; split; try (rewrite MS); ring.
Qed.

Lemma matches_run (q p : Q) (b : bool) (world : list (bool * shown)) : forall (c : Q) (w : bits) (r : weights),
  0 < q <= 1 -> Forall (shows b) (map snd world) -> matches b c w r ->
  matches b (c * product q b (map snd world)) (fold_left (go q p) world w)
    (run (/ q) (if b then 1 - p else p) (map (translate b) world) r).
Proof.
  induction world as [| s rest IH]; intros c w r H F M; simpl.
  - destruct M as [M1 M2]. split; [rewrite M1 | rewrite M2]; ring.
  - inversion F as [| ? ? F1 F2]; subst.
    assert (M1 := matches_step q p b s c w r H F1 M).
    assert (M2 := IH _ _ _ H F2 M1).
    destruct M2 as [A B]. unfold run. simpl.
    split; [rewrite A | rewrite B]; unfold run; ring.
Qed.

Lemma chance_is_relative (q p0 p1 : Q) (b : bool) (world : list (bool * shown)) :
  0 < q <= 1 -> Forall (shows b) (map snd world) ->
  chance q p0 p1 world ==
    product q b (map snd world) *
    likelihood (/ q) (if b then 1 - p0 else p0) (if b then 1 - p1 else p1) (map (translate b) world).
Proof.
  intros H F. unfold chance, likelihood.
  assert (M0 : matches b 1 (Bits (1 - p0) p0) (Weights (1 - (if b then 1 - p0 else p0)) (if b then 1 - p0 else p0))).
  { unfold matches; destruct b; simpl; split; ring. }
  destruct (matches_run q p1 b world 1 _ _ H F M0) as [A B].
  set (final := fold_left (go q p1) world (Bits (1 - p0) p0)) in *.
  transitivity ((if b then one final else zero final) + (if b then zero final else one final)).
  - destruct b; ring.
  - rewrite A, B. ring.
Qed.

Lemma product_positive (q : Q) (b : bool) (v : list shown) : 0 < q -> 0 < product q b v.
Proof.
  intros H. induction v as [| [y s | b'] v IH]; simpl; [lra | | lra].
  set (k := (y - s - (if b then 1 else 0))%Z). assert (P : 0 < lap q k) by (apply pow_positive; exact H). nra.
Qed.

Definition numbers (v : list shown) : nat := length (filter (fun o => match o with Number _ _ => true | _ => false end) v).

Lemma relative_counts (b : bool) (v : list shown) :
  (ups (map (relative b) v) + downs (map (relative b) v) = numbers v)%nat.
Proof.
  induction v as [| [y s | b'] v IH]; simpl; [reflexivity | | exact IH].
  destruct b; destruct (s <? y)%Z; simpl; unfold numbers in *; simpl; lia.
Qed.

(** For every view with one copy and n releases, and all arrivals in either world:
    chance <= rate * (1 - p1 + p1 * K^n) * chance', K = 1/q. *)
Theorem joint_loss_of_releases (q rate : Q) (b : bool) (world world' : list (bool * shown)) :
  0 < q <= 1 -> 1 <= rate -> map snd world = map snd world' -> Forall (shows b) (map snd world) ->
  copies (map (relative b) (map snd world)) = 1%nat ->
  chance q (p0 rate) (p1 rate) world <=
    rate * mix (p1 rate) (pow (/ q) (numbers (map snd world))) * chance q (p0 rate) (p1 rate) world'.
Proof.
  intros H HR V F C.
  assert (F' : Forall (shows b) (map snd world')) by (rewrite <- V; exact F).
  rewrite (chance_is_relative q _ _ b world H F), (chance_is_relative q _ _ b world' H F'), <- V.
  assert (E : forall w : list (bool * shown), view (map (translate b) w) = map (relative b) (map snd w)).
  { intros w. unfold view. rewrite !map_map. apply map_ext. intros [a o]; reflexivity. }
  assert (J := joint_loss_symmetric (/ q) rate b (map (translate b) world) (map (translate b) world')
    (inverse_at_least_one q H) HR).
  rewrite !E in J. rewrite relative_counts in J.
  specialize (J ltac:(rewrite V; reflexivity) C).
  unfold start_other, arrival_other in J.
  assert (P := product_positive q b (map snd world) (proj1 H)).
  set (m := rate * mix (p1 rate) (pow (/ q) (numbers (map snd world)))) in *.
  set (l := likelihood (/ q) (if b then 1 - p0 rate else p0 rate) (if b then 1 - p1 rate else p1 rate)
              (map (translate b) world)) in *.
  set (l' := likelihood (/ q) (if b then 1 - p0 rate else p0 rate) (if b then 1 - p1 rate else p1 rate)
              (map (translate b) world')) in *.
  set (k := product q b (map snd world)) in *.
  assert (T : k * l <= k * (m * l')) by (apply times_le; lra). lra.
Qed.

(** ** Sets of views, and the randomness of all others *)

Fixpoint sum {A : Type} (f : A -> Q) (list : list A) : Q :=
  match list with [] => 0 | a :: rest => f a + sum f rest end.

(** A bound of every view is one of every event, and of every mixture with weights that do not depend on the world. *)
Theorem mixture {A : Type} (c : Q) (weight f f' : A -> Q) (views : list A) :
  (forall a, In a views -> 0 <= weight a) -> (forall a, In a views -> f a <= c * f' a) ->
  sum (fun a => weight a * f a) views <= c * sum (fun a => weight a * f' a) views.
Proof.
  induction views as [| a views IH]; simpl; intros W B; [lra |].
  assert (X : weight a * f a <= weight a * (c * f' a)) by (apply times_le; auto).
  assert (Y := IH (fun x H => W x (or_intror H)) (fun x H => B x (or_intror H))). lra.
Qed.
