(** The joint loss of one stored bit: one copy of the state and any number of releases, in any order.

    Model. A bit is drawn from the coin [p0] at the start and drawn again from the coin [p1] at every arrival of its
    user. Observations come in a fixed order: exactly one copy shows the bit, and every release shows a number whose
    likelihood is [g0] if the bit is 0 and [g1] if it is 1. The two worlds differ in the arrivals before and between the
    observations. For discrete Laplace noise with ratio K the likelihoods of a release differ by exactly the factor K,
    one way or the other, whatever the sum of all other bits is (Laplace.v), so a release is one of [Up], [Down] here,
    and likelihoods are relative to those of the bit that the copy shows.

    docs/proofs/joint-loss.md, Theorem 1. *)

Require Import QArith Qpower Lqa List Lia.
Import ListNotations.
Open Scope Q_scope.

Lemma times_le (t a b : Q) : 0 <= t -> a <= b -> t * a <= t * b.
Proof. intros; nra. Qed.

(** ** The mixture of a coin *)

Definition mix (p x : Q) : Q := 1 - p + p * x.

Lemma mix_at_least_one (p x : Q) : 0 <= p -> 1 <= x -> 1 <= mix p x.
Proof. unfold mix; intros; nra. Qed.

Lemma mix_positive (p x : Q) : 0 <= p <= 1 -> 0 < x -> 0 < mix p x.
Proof. unfold mix; intros; nra. Qed.

Lemma mix_monotone (p x y : Q) : 0 <= p -> x <= y -> mix p x <= mix p y.
Proof. unfold mix; intros; nra. Qed.

Lemma mix_coin (q p x : Q) : q <= p -> 1 <= x -> mix q x <= mix p x.
Proof. unfold mix; intros; nra. Qed.

(** Two mixtures are at most the mixture of the product. *)
Lemma mix_product (p x y : Q) : 0 <= p <= 1 -> 1 <= x -> 1 <= y -> mix p x * mix p y <= mix p (x * y).
Proof.
  unfold mix; intros Hp Hx Hy.
  assert (E : (1 - p + p * (x * y)) - (1 - p + p * x) * (1 - p + p * y) == p * (1 - p) * ((x - 1) * (y - 1))) by ring.
  assert (0 <= p * (1 - p)) by nra.
  assert (0 <= (x - 1) * (y - 1)) by nra.
  assert (0 <= p * (1 - p) * ((x - 1) * (y - 1))) by nra.
  lra.
Qed.

(** A mixture of a number below one is at least the inverse of that of its inverse. *)
Lemma mix_inverse (q y : Q) : 0 <= q <= 1 -> 1 <= y -> 1 <= mix q (/ y) * mix q y.
Proof.
  unfold mix; intros Hq Hy.
  assert (Y : y * / y == 1) by (apply Qmult_inv_r; lra).
  set (z := / y) in *.
  assert (E : (1 - q + q * z) * (1 - q + q * y) == 1 + q * (1 - q) * (y + z - 2) + q * q * (y * z - 1)) by ring.
  assert (0 < z) by (unfold z; apply Qinv_lt_0_compat; lra).
  assert (0 <= y + z - 2) by nra.
  assert (0 <= q * (1 - q)) by nra.
  assert (0 <= q * (1 - q) * (y + z - 2)) by nra.
  assert (q * q * (y * z - 1) == 0) by (rewrite Y; ring).
  lra.
Qed.

(** ** Worlds and views *)

(** What a view shows after the arrivals of one stretch. *)
Inductive observation := Up | Down | Copy.

(** A step is whether the user arrived since the last observation, and the observation. Several arrivals in a row are
    one: each draws the bit again. *)
Definition step : Type := bool * observation.

(** Unnormalised probabilities that the bit is what the copy shows ("same") or is not ("other"), with all that was
    observed so far. A coin [r] is the probability of "other". *)
Record weights := Weights { same : Q; other : Q }.

Definition draw (r : Q) (w : weights) : weights :=
  Weights ((1 - r) * (same w + other w)) (r * (same w + other w)).

Definition observe (K : Q) (o : observation) (w : weights) : weights :=
  match o with
  | Up => Weights (same w) (K * other w)
  | Down => Weights (same w) (/ K * other w)
  | Copy => Weights (same w) 0
  end.

Definition apply (K r : Q) (w : weights) (s : step) : weights :=
  observe K (snd s) (if fst s then draw r w else w).

Definition run (K r : Q) (world : list step) (w : weights) : weights := fold_left (apply K r) world w.

(** The likelihood of the view in a world; [r0] and [r] are the coins of the start and of an arrival. *)
Definition likelihood (K r0 r : Q) (world : list step) : Q :=
  let final := run K r world (Weights (1 - r0) r0) in same final + other final.

Definition view (world : list step) : list observation := map snd world.

Fixpoint ups (v : list observation) : nat :=
  match v with [] => 0 | Up :: rest => S (ups rest) | _ :: rest => ups rest end.
Fixpoint downs (v : list observation) : nat :=
  match v with [] => 0 | Down :: rest => S (downs rest) | _ :: rest => downs rest end.
Fixpoint copies (v : list observation) : nat :=
  match v with [] => 0 | Copy :: rest => S (copies rest) | _ :: rest => copies rest end.

(** ** Powers of K *)

Fixpoint pow (K : Q) (n : nat) : Q := match n with O => 1 | S m => K * pow K m end.

Lemma pow_at_least_one (K : Q) (n : nat) : 1 <= K -> 1 <= pow K n.
Proof. intros HK; induction n; simpl; nra. Qed.

Lemma pow_add (K : Q) (m n : nat) : pow K (m + n) == pow K m * pow K n.
Proof. induction m; simpl; [ring | rewrite IHm; ring]. Qed.

(** ** Bounds for one world *)

Section Bounds.
  Variables K p r : Q.
  Hypothesis HK : 1 <= K.
  Hypothesis Hp : 0 <= p <= 1.
  Hypothesis Hr : 0 <= r <= p.

  Lemma K_inverse : 0 < / K /\ / K <= 1 /\ K * / K == 1.
  Proof.
    assert (E : K * / K == 1) by (apply Qmult_inv_r; lra).
    assert (0 < / K) by (apply Qinv_lt_0_compat; lra).
    repeat split; try assumption; nra.
  Qed.

  (** Bounds of the weights after some observations: [c] is what the copy left, 1 before it; [q] is the coin of the
      current stretch, in which releases favour "other" by at most the factor [y]; closed stretches contribute at most
      the mixture of [x] together. *)
  Definition below (c q x y : Q) (w : weights) : Prop :=
    0 <= same w /\ 0 <= other w /\ same w <= c * (1 - q) * mix p x /\ other w <= c * q * y * mix p x.

  Definition above (c q x y : Q) (w : weights) : Prop :=
    0 <= same w /\ 0 <= other w /\ c * (1 - q) <= same w * mix p x /\ c * q <= other w * y * mix p x.

  Lemma below_total (c q x y : Q) (w : weights) :
    0 <= c -> 0 <= q <= p -> 1 <= x -> 1 <= y -> below c q x y w -> same w + other w <= c * mix p (x * y).
  Proof.
    intros Hc Hq Hx Hy [S [O [BS BO]]].
    assert (X : 1 <= mix p x) by (apply mix_at_least_one; lra).
    assert (M : mix q y <= mix p y) by (apply mix_coin; lra).
    assert (Pr : mix p x * mix p y <= mix p (x * y)) by (apply mix_product; lra).
    assert (T : same w + other w <= c * (mix p x * mix q y)) by (unfold mix at 2; nra).
    assert (mix p x * mix q y <= mix p (x * y)) by nra.
    nra.
  Qed.

  Lemma above_total (c q x y : Q) (w : weights) :
    0 <= c -> 0 <= q <= p -> 1 <= x -> 1 <= y -> above c q x y w -> c <= (same w + other w) * mix p (x * y).
  Proof.
    intros Hc Hq Hx Hy [S [O [BS BO]]].
    set (t := same w + other w).
    assert (X : 1 <= mix p x) by (apply mix_at_least_one; lra).
    assert (Y : 1 <= mix p y) by (apply mix_at_least_one; lra).
    assert (I : 1 <= mix q (/ y) * mix q y) by (apply mix_inverse; lra).
    assert (M : mix q y <= mix p y) by (apply mix_coin; lra).
    assert (Z : y * / y == 1) by (apply Qmult_inv_r; lra).
    assert (ZP : 0 < / y) by (apply Qinv_lt_0_compat; lra).
    assert (Pr : mix p x * mix p y <= mix p (x * y)) by (apply mix_product; lra).
    assert (T : 0 <= t) by (unfold t; lra).
    assert (L : c * mix q (/ y) <= t * mix p x).
    { assert (c * q * / y <= other w * mix p x).
      { assert (E : other w * mix p x == other w * y * mix p x * / y).
        { transitivity (other w * mix p x * (y * / y)); [rewrite Z; ring | ring]. }
        rewrite E. nra. }
      unfold t. unfold mix at 1. nra. }
    assert (P : 0 < mix q (/ y)) by (apply mix_positive; lra).
    assert (A : c <= c * mix q (/ y) * mix p y).
    { assert (1 <= mix q (/ y) * mix p y) by nra. nra. }
    assert (B : c * mix q (/ y) * mix p y <= t * mix p x * mix p y) by nra.
    assert (C : t * (mix p x * mix p y) <= t * mix p (x * y)) by nra.
    lra.
  Qed.

  Lemma below_draw (c q x y : Q) (w : weights) :
    0 <= c -> 0 <= q <= p -> 1 <= x -> 1 <= y -> below c q x y w -> below c r (x * y) 1 (draw r w).
  Proof.
    intros Hc Hq Hx Hy B.
    assert (T := below_total c q x y w Hc Hq Hx Hy B).
    destruct B as [S [O _]]; unfold below, draw; simpl.
    repeat split; nra.
  Qed.

  Lemma above_draw (c q x y : Q) (w : weights) :
    0 <= c -> 0 <= q <= p -> 1 <= x -> 1 <= y -> above c q x y w -> above c r (x * y) 1 (draw r w).
  Proof.
    intros Hc Hq Hx Hy B.
    assert (T := above_total c q x y w Hc Hq Hx Hy B).
    destruct B as [S [O _]]; unfold above, draw; simpl.
    repeat split; nra.
  Qed.

  Lemma below_observe (c q x y : Q) (w : weights) (o : observation) :
    0 <= c -> 0 <= q <= p -> 1 <= x -> 1 <= y -> o <> Copy -> below c q x y w ->
    below c q x (match o with Up => K * y | _ => y end) (observe K o w).
  Proof.
    intros Hc Hq Hx Hy Ho [S [O [BS BO]]].
    destruct K_inverse as [IP [IL _]].
    assert (X : 1 <= mix p x) by (apply mix_at_least_one; lra).
    destruct o; try contradiction; unfold below, observe; simpl; repeat split; try nra.
  Qed.

  Lemma above_observe (c q x y : Q) (w : weights) (o : observation) :
    0 <= c -> 0 <= q <= p -> 1 <= x -> 1 <= y -> o <> Copy -> above c q x y w ->
    above c q x (match o with Down => K * y | _ => y end) (observe K o w).
  Proof.
    intros Hc Hq Hx Hy Ho [S [O [BS BO]]].
    destruct K_inverse as [IP [IL IE]].
    assert (X : 1 <= mix p x) by (apply mix_at_least_one; lra).
    assert (Z : 0 <= other w * y * mix p x) by nra.
    destruct o; try contradiction; unfold above, observe; simpl; repeat split; try nra.
  Qed.

  (** After any observations but a copy. *)
  Lemma below_run (world : list step) : forall (c q x y : Q) (w : weights),
    copies (view world) = 0%nat -> 0 <= c -> 0 <= q <= p -> 1 <= x -> 1 <= y -> below c q x y w ->
    exists q' x' y', (q' = q \/ q' = r) /\ 1 <= x' /\ 1 <= y' /\
      x' * y' == x * y * pow K (ups (view world)) /\ below c q' x' y' (run K r world w).
  Proof.
    induction world as [| [arrived o] rest IH]; intros c q x y w Hn Hc Hq Hx Hy B.
    - exists q, x, y; simpl; repeat split; try (left; reflexivity); try lra; apply B.
    - assert (Ho : o <> Copy) by (destruct o; simpl in Hn; congruence).
      assert (Hn' : copies (view rest) = 0%nat) by (destruct o; simpl in Hn; congruence).
      assert (N : forall q1 x1 y1 w1, (q1 = q \/ q1 = r) -> 0 <= q1 <= p -> 1 <= x1 -> 1 <= y1 -> x1 * y1 == x * y ->
        below c q1 x1 y1 w1 ->
        exists q' x' y', (q' = q \/ q' = r) /\ 1 <= x' /\ 1 <= y' /\
          x' * y' == x * y * pow K (ups (o :: view rest)) /\ below c q' x' y' (run K r rest (observe K o w1))).
      { intros q1 x1 y1 w1 C1 Q1 X1 Y1 E1 B1.
        destruct (IH c q1 x1 (match o with Up => K * y1 | _ => y1 end) (observe K o w1))
          as [q' [x' [y' [C' [X' [Y' [E' B']]]]]]]; try assumption.
        - destruct o; nra.
        - apply below_observe; assumption.
        - exists q', x', y'; repeat split; try assumption; try apply B'.
          + destruct C' as [-> | ->]; [destruct C1 as [-> | ->] |]; tauto.
          + rewrite E'. destruct o; simpl; try congruence.
            * transitivity (x1 * y1 * (K * pow K (ups (view rest)))); [ring | rewrite E1; ring].
            * rewrite E1. ring. }
      destruct arrived.
      + apply (N r (x * y) 1 (draw r w)); try lra; try tauto; try nra. apply below_draw with (q := q); assumption.
      + apply (N q x y w); try lra; try tauto.
  Qed.

  Lemma above_run (world : list step) : forall (c q x y : Q) (w : weights),
    copies (view world) = 0%nat -> 0 <= c -> 0 <= q <= p -> 1 <= x -> 1 <= y -> above c q x y w ->
    exists q' x' y', (q' = q \/ q' = r) /\ 1 <= x' /\ 1 <= y' /\
      x' * y' == x * y * pow K (downs (view world)) /\ above c q' x' y' (run K r world w).
  Proof.
    induction world as [| [arrived o] rest IH]; intros c q x y w Hn Hc Hq Hx Hy B.
    - exists q, x, y; simpl; repeat split; try (left; reflexivity); try lra; apply B.
    - assert (Ho : o <> Copy) by (destruct o; simpl in Hn; congruence).
      assert (Hn' : copies (view rest) = 0%nat) by (destruct o; simpl in Hn; congruence).
      assert (N : forall q1 x1 y1 w1, (q1 = q \/ q1 = r) -> 0 <= q1 <= p -> 1 <= x1 -> 1 <= y1 -> x1 * y1 == x * y ->
        above c q1 x1 y1 w1 ->
        exists q' x' y', (q' = q \/ q' = r) /\ 1 <= x' /\ 1 <= y' /\
          x' * y' == x * y * pow K (downs (o :: view rest)) /\ above c q' x' y' (run K r rest (observe K o w1))).
      { intros q1 x1 y1 w1 C1 Q1 X1 Y1 E1 B1.
        destruct (IH c q1 x1 (match o with Down => K * y1 | _ => y1 end) (observe K o w1))
          as [q' [x' [y' [C' [X' [Y' [E' B']]]]]]]; try assumption.
        - destruct o; nra.
        - apply above_observe; assumption.
        - exists q', x', y'; repeat split; try assumption; try apply B'.
          + destruct C' as [-> | ->]; [destruct C1 as [-> | ->] |]; tauto.
          + rewrite E'. destruct o; simpl; try congruence.
            * rewrite E1. ring.
            * transitivity (x1 * y1 * (K * pow K (downs (view rest)))); [ring | rewrite E1; ring]. }
      destruct arrived.
      + apply (N r (x * y) 1 (draw r w)); try lra; try tauto; try nra. apply above_draw with (q := q); assumption.
      + apply (N q x y w); try lra; try tauto.
  Qed.

  (** A view with one copy: the closed stretches before and after it, and the coin of the stretch in which it is. *)
  Lemma likelihood_below (r0 : Q) (before after : list step) (arrived : bool) (hi : Q) :
    0 <= r0 <= p -> copies (view before) = 0%nat -> copies (view after) = 0%nat -> 1 - r0 <= hi -> 1 - r <= hi ->
    likelihood K r0 r (before ++ (arrived, Copy) :: after) <= hi * mix p (pow K (ups (view before) + ups (view after))).
  Proof.
    intros Hr0 Hb Ha H0 H1. unfold likelihood, run. rewrite fold_left_app. simpl.
    destruct (below_run before 1 r0 1 1 (Weights (1 - r0) r0)) as [q [x [y [C [X [Y [E B]]]]]]]; try lra; try assumption.
    { unfold below, mix; simpl; repeat split; lra. }
    fold (run K r before (Weights (1 - r0) r0)). set (w := run K r before (Weights (1 - r0) r0)) in *.
    assert (Q : 0 <= q <= p) by (destruct C as [-> | ->]; lra).
    assert (D : exists q1 x1 y1, (q1 = r0 \/ q1 = r) /\ 1 <= x1 /\ 1 <= y1 /\ x1 * y1 == x * y /\
                below 1 q1 x1 y1 (if arrived then draw r w else w)).
    { destruct arrived.
      - exists r, (x * y), 1; repeat split; try tauto; try nra; apply (below_draw 1 q x y w); try lra; assumption.
      - exists q, x, y; repeat split; try tauto; try lra; apply B. }
    destruct D as [q1 [x1 [y1 [C1 [X1 [Y1 [E1 [S [O [BS BO]]]]]]]]]].
    set (w1 := if arrived then draw r w else w) in *.
    assert (Q1 : 0 <= q1 <= p) by (destruct C1 as [-> | ->]; lra).
    destruct (below_run after (1 - q1) 0 x1 1 (observe K Copy w1)) as [q2 [x2 [y2 [C2 [X2 [Y2 [E2 B2]]]]]]];
      try lra; try assumption.
    { unfold below, observe; simpl; repeat split; lra. }
    assert (Q2 : 0 <= q2 <= p) by (destruct C2 as [-> | ->]; lra).
    assert (T : same (run K r after (observe K Copy w1)) + other (run K r after (observe K Copy w1))
                <= (1 - q1) * mix p (x2 * y2)) by (apply (below_total (1 - q1) q2); try lra; assumption).
    change (fold_left (apply K r) after (observe K Copy w1)) with (run K r after (observe K Copy w1)).
    assert (U := pow_at_least_one K (ups (view after)) HK).
    assert (L : x2 * y2 <= pow K (ups (view before) + ups (view after))).
    { rewrite pow_add, E2. rewrite E in E1.
      assert (F : 1 * 1 * pow K (ups (view before)) == pow K (ups (view before))) by ring. rewrite F in E1.
      assert (x1 <= pow K (ups (view before))) by nra.
      assert (G : x1 * 1 * pow K (ups (view after)) == x1 * pow K (ups (view after))) by ring. rewrite G.
      nra. }
    assert (M : mix p (x2 * y2) <= mix p (pow K (ups (view before) + ups (view after)))) by (apply mix_monotone; lra).
    assert (H2 : 1 - q1 <= hi) by (destruct C1 as [-> | ->]; lra).
    assert (H3 : 1 <= mix p (x2 * y2)) by (apply mix_at_least_one; nra).
    set (m1 := mix p (x2 * y2)) in *. set (m2 := mix p (pow K (ups (view before) + ups (view after)))) in *.
    apply Qle_trans with ((1 - q1) * m1); [exact T | nra].
  Qed.

  Lemma likelihood_above (r0 : Q) (before after : list step) (arrived : bool) (lo : Q) :
    0 <= r0 <= p -> copies (view before) = 0%nat -> copies (view after) = 0%nat -> lo <= 1 - r0 -> lo <= 1 - r ->
    lo <= likelihood K r0 r (before ++ (arrived, Copy) :: after) * mix p (pow K (downs (view before) + downs (view after))).
  Proof.
    intros Hr0 Hb Ha H0 H1. unfold likelihood, run. rewrite fold_left_app. simpl.
    destruct (above_run before 1 r0 1 1 (Weights (1 - r0) r0)) as [q [x [y [C [X [Y [E B]]]]]]]; try lra; try assumption.
    { unfold above, mix; simpl; repeat split; lra. }
    fold (run K r before (Weights (1 - r0) r0)). set (w := run K r before (Weights (1 - r0) r0)) in *.
    assert (Q : 0 <= q <= p) by (destruct C as [-> | ->]; lra).
    assert (D : exists q1 x1 y1, (q1 = r0 \/ q1 = r) /\ 1 <= x1 /\ 1 <= y1 /\ x1 * y1 == x * y /\
                above 1 q1 x1 y1 (if arrived then draw r w else w)).
    { destruct arrived.
      - exists r, (x * y), 1; repeat split; try tauto; try nra; apply (above_draw 1 q x y w); try lra; assumption.
      - exists q, x, y; repeat split; try tauto; try lra; apply B. }
    destruct D as [q1 [x1 [y1 [C1 [X1 [Y1 [E1 [S [O [BS BO]]]]]]]]]].
    set (w1 := if arrived then draw r w else w) in *.
    assert (Q1 : 0 <= q1 <= p) by (destruct C1 as [-> | ->]; lra).
    destruct (above_run after (1 - q1) 0 x1 1 (observe K Copy w1)) as [q2 [x2 [y2 [C2 [X2 [Y2 [E2 B2]]]]]]];
      try lra; try assumption.
    { unfold above, observe; simpl; repeat split; lra. }
    assert (Q2 : 0 <= q2 <= p) by (destruct C2 as [-> | ->]; lra).
    assert (T : 1 - q1 <= (same (run K r after (observe K Copy w1)) + other (run K r after (observe K Copy w1)))
                * mix p (x2 * y2)) by (apply (above_total (1 - q1) q2); try lra; assumption).
    change (fold_left (apply K r) after (observe K Copy w1)) with (run K r after (observe K Copy w1)).
    assert (U := pow_at_least_one K (downs (view after)) HK).
    assert (L : x2 * y2 <= pow K (downs (view before) + downs (view after))).
    { rewrite pow_add, E2. rewrite E in E1.
      assert (F : 1 * 1 * pow K (downs (view before)) == pow K (downs (view before))) by ring. rewrite F in E1.
      assert (x1 <= pow K (downs (view before))) by nra.
      assert (G : x1 * 1 * pow K (downs (view after)) == x1 * pow K (downs (view after))) by ring. rewrite G.
      nra. }
    assert (M : mix p (x2 * y2) <= mix p (pow K (downs (view before) + downs (view after)))) by (apply mix_monotone; lra).
    assert (lo <= 1 - q1) by (destruct C1 as [-> | ->]; lra).
    destruct B2 as [S2 [O2 _]].
    set (m1 := mix p (x2 * y2)) in *. set (m2 := mix p (pow K (downs (view before) + downs (view after)))) in *.
    set (total := same (run K r after (observe K Copy w1)) + other (run K r after (observe K Copy w1))) in *.
    assert (0 <= total) by (unfold total; lra).
    apply Qle_trans with (total * m1); [lra |].
    apply times_le; assumption.
  Qed.
End Bounds.

(** ** The theorem *)

Lemma split_at_copy (world : list step) :
  copies (view world) = 1%nat ->
  exists before arrived after, world = before ++ (arrived, Copy) :: after /\
    copies (view before) = 0%nat /\ copies (view after) = 0%nat.
Proof.
  induction world as [| [arrived o] rest IH]; simpl; intros H; [discriminate |].
  destruct o.
  - destruct (IH H) as [b [a [c [-> [Hb Hc]]]]]. exists ((arrived, Up) :: b), a, c; auto.
  - destruct (IH H) as [b [a [c [-> [Hb Hc]]]]]. exists ((arrived, Down) :: b), a, c; auto.
  - exists [], arrived, rest; repeat split. congruence.
Qed.

Lemma ups_app (v w : list observation) : ups (v ++ w) = (ups v + ups w)%nat.
Proof. induction v as [| [] v IH]; simpl; congruence. Qed.

Lemma downs_app (v w : list observation) : downs (v ++ w) = (downs v + downs w)%nat.
Proof. induction v as [| [] v IH]; simpl; congruence. Qed.

(** [rate] is the probability ratio of the stored bit, e^epsilon_s; both coins, of the start and of an arrival, give
    "same" a probability in [lo, rate * lo]. Any two worlds, with the same view of one copy and n releases, differ in
    likelihood by at most rate * (1 - p + p * K^n). *)
Theorem joint_loss (K p rate lo r0 r : Q) (world world' : list step) :
  1 <= K -> 0 <= p <= 1 -> 0 <= r0 <= p -> 0 <= r <= p -> 0 < lo ->
  lo <= 1 - r0 <= rate * lo -> lo <= 1 - r <= rate * lo ->
  view world = view world' -> copies (view world) = 1%nat ->
  likelihood K r0 r world <=
    rate * mix p (pow K (ups (view world) + downs (view world))) * likelihood K r0 r world'.
Proof.
  intros HK Hp Hr0 Hr Hlo H0 H1 V N.
  assert (N' : copies (view world') = 1%nat) by (rewrite <- V; exact N).
  destruct (split_at_copy world N) as [b [a [c [E [Hb Hc]]]]].
  destruct (split_at_copy world' N') as [b' [a' [c' [E' [Hb' Hc']]]]].
  assert (Up : likelihood K r0 r world <= rate * lo * mix p (pow K (ups (view world)))).
  { rewrite E. unfold view at 1. rewrite map_app. simpl. rewrite ups_app. simpl.
    apply likelihood_below; try lra; assumption. }
  assert (Lo : lo <= likelihood K r0 r world' * mix p (pow K (downs (view world)))).
  { rewrite V, E'. unfold view at 1. rewrite map_app. simpl. rewrite downs_app. simpl.
    apply likelihood_above; try lra; assumption. }
  set (u := ups (view world)) in *. set (d := downs (view world)) in *.
  assert (PU := pow_at_least_one K u HK). assert (PD := pow_at_least_one K d HK).
  assert (MU : 1 <= mix p (pow K u)) by (apply mix_at_least_one; lra).
  assert (MD : 1 <= mix p (pow K d)) by (apply mix_at_least_one; lra).
  assert (MP : mix p (pow K u) * mix p (pow K d) <= mix p (pow K (u + d))).
  { unfold mix at 3. rewrite pow_add. apply mix_product; assumption. }
  set (W := likelihood K r0 r world) in *. set (W' := likelihood K r0 r world') in *.
  set (mu := mix p (pow K u)) in *. set (md := mix p (pow K d)) in *. set (m := mix p (pow K (u + d))) in *.
  assert (R : 0 <= rate) by nra.
  assert (W0 : 0 <= W') by nra.
  assert (A : rate * mu * lo <= rate * mu * (W' * md)).
  { apply times_le; [nra | exact Lo]. }
  assert (B : rate * W' * (mu * md) <= rate * W' * m).
  { apply times_le; [nra | exact MP]. }
  apply Qle_trans with (rate * mu * lo); [| apply Qle_trans with (rate * mu * (W' * md))]; lra.
Qed.

(** Symmetric coins: p1 = rate/(1 + rate), p0 = 1 - p1. A copy may show 1 ("same" is 1, "other" 0) or 0. *)
Definition p1 (rate : Q) : Q := rate / (1 + rate).
Definition p0 (rate : Q) : Q := 1 / (1 + rate).

(** Probability that the bit is not what the copy shows, at the start and after an arrival. *)
Definition start_other (rate : Q) (bit : bool) : Q := if bit then 1 - p0 rate else p0 rate.
Definition arrival_other (rate : Q) (bit : bool) : Q := if bit then 1 - p1 rate else p1 rate.

Theorem joint_loss_symmetric (K rate : Q) (bit : bool) (world world' : list step) :
  1 <= K -> 1 <= rate -> view world = view world' -> copies (view world) = 1%nat ->
  likelihood K (start_other rate bit) (arrival_other rate bit) world <=
    rate * mix (p1 rate) (pow K (ups (view world) + downs (view world))) *
    likelihood K (start_other rate bit) (arrival_other rate bit) world'.
Proof.
  intros HK HR V N.
  assert (I : (1 + rate) * / (1 + rate) == 1) by (apply Qmult_inv_r; lra).
  assert (P : 0 < / (1 + rate)) by (apply Qinv_lt_0_compat; lra).
  unfold start_other, arrival_other, p1, p0, Qdiv in *. set (z := / (1 + rate)) in *.
  assert (E : rate * z == 1 - z) by lra.
  apply joint_loss with (lo := z); try assumption; destruct bit; try (split; nra); nra.
Qed.

(** The bound is attained: present before the copy and gone after it, against absent before and present after it. Here
    for one release, rate 3 and K = 5/4: 57/16. *)
Example attained :
  likelihood (5 # 4) (start_other 3 false) (arrival_other 3 false) [(false, Copy); (true, Up)] ==
  3 * mix (p1 3) (pow (5 # 4) 1) *
  likelihood (5 # 4) (start_other 3 false) (arrival_other 3 false) [(true, Copy); (false, Up)].
Proof. reflexivity. Qed.

Example value : 3 * mix (p1 3) (pow (5 # 4) 1) == 57 # 16.
Proof. reflexivity. Qed.
