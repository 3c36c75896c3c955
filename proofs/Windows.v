(** One person, one period, one number: several windows, one copy (docs/proofs/person-period.md, Theorem 1).

    A process holds one bit of a person per window, drawn with coins of its own. An arrival draws the bit of one window
    again; an answer of a window shows a noisy number; the copy shows the bits of all windows that are open at that
    moment. [factorises] proves that a view's likelihood is a product over windows. [person_period] bounds the ratio of
    two worlds by the loss of the answers for windows that the copy does not show, and by the joint loss for the
    others. Arrivals may depend on the view up to them in any way: the theorem is about one view, and all arrivals. *)

Require Import QArith ZArith Lqa List Lia Arith.
From Panstream Require Import Bit Laplace Release.
Import ListNotations.
Open Scope Q_scope.

(** What happens in a world. [Opened] is the copy: the bit of every window, or None if it is not open. *)
Inductive event :=
  | Arrive (window : nat)
  | Answer (window : nat) (y s : Z)
  | Opened (bits : list (option bool)).

Definition bit_at (i : nat) (state : list bool) : bool := nth i state false.

Fixpoint set_bit (i : nat) (b : bool) (state : list bool) : list bool :=
  match state, i with
  | [], _ => []
  | _ :: rest, O => b :: rest
  | a :: rest, S j => a :: set_bit j b rest
  end.

Definition value (b : bool) : Z := if b then 1 else 0.
Definition coin (p : Q) (b : bool) : Q := if b then p else 1 - p.

Fixpoint agrees (bits : list (option bool)) (state : list bool) : Q :=
  match bits, state with
  | Some b :: bits, a :: state => (if Bool.eqb a b then 1 else 0) * agrees bits state
  | None :: bits, _ :: state => agrees bits state
  | _, _ => 1
  end.

(** The expected likelihood of what is still to come, given the bits of all windows. *)
Fixpoint expected (q p1 : Q) (events : list event) (state : list bool) : Q :=
  match events with
  | [] => 1
  | Arrive i :: rest =>
      coin p1 false * expected q p1 rest (set_bit i false state) + coin p1 true * expected q p1 rest (set_bit i true state)
  | Answer i y s :: rest => lap q (y - s - value (bit_at i state)) * expected q p1 rest state
  | Opened bits :: rest => agrees bits state * expected q p1 rest state
  end.

(** The same for one window, whose number is [i]. *)
Fixpoint alone (q p1 : Q) (i : nat) (events : list event) (b : bool) : Q :=
  match events with
  | [] => 1
  | Arrive j :: rest =>
      if Nat.eqb i j then coin p1 false * alone q p1 i rest false + coin p1 true * alone q p1 i rest true
      else alone q p1 i rest b
  | Answer j y s :: rest => (if Nat.eqb i j then lap q (y - s - value b) else 1) * alone q p1 i rest b
  | Opened bits :: rest =>
      (match nth i bits None with Some b' => if Bool.eqb b b' then 1 else 0 | None => 1 end) * alone q p1 i rest b
  end.

(** The likelihood of a view: the bits of [n] windows start as coins of p0. *)
Fixpoint started (p0 : Q) (n : nat) (f : list bool -> Q) : Q :=
  match n with
  | O => f []
  | S m => coin p0 false * started p0 m (fun rest => f (false :: rest)) + coin p0 true * started p0 m (fun rest => f (true :: rest))
  end.

Definition view_chance (q p0 p1 : Q) (n : nat) (events : list event) : Q := started p0 n (expected q p1 events).

Definition window_chance (q p0 p1 : Q) (i : nat) (events : list event) : Q :=
  coin p0 false * alone q p1 i events false + coin p0 true * alone q p1 i events true.

Fixpoint product_from (k n : nat) (f : nat -> Q) : Q :=
  match n with O => 1 | S m => f k * product_from (S k) m f end.

(** ** The likelihood is a product over windows *)

Fixpoint all_alone (q p1 : Q) (k : nat) (events : list event) (state : list bool) : Q :=
  match state with [] => 1 | b :: rest => alone q p1 k events b * all_alone q p1 (S k) events rest end.

Lemma all_alone_nil (q p1 : Q) (state : list bool) : forall k, all_alone q p1 k [] state == 1.
Proof. induction state; intros k; simpl; [reflexivity | rewrite IHstate; ring]. Qed.

Lemma all_alone_past (q p1 : Q) (i : nat) (rest : list event) (state : list bool) : forall k,
  (i < k)%nat -> all_alone q p1 k (Arrive i :: rest) state == all_alone q p1 k rest state.
Proof.
  induction state as [| b state IH]; intros k L; simpl; [reflexivity |].
  rewrite (proj2 (Nat.eqb_neq k i)) by lia. rewrite IH by lia. reflexivity.
Qed.

Lemma all_alone_arrive (q p1 : Q) (i : nat) (rest : list event) (state : list bool) : forall k,
  (i < length state)%nat ->
  all_alone q p1 k (Arrive (k + i) :: rest) state ==
    coin p1 false * all_alone q p1 k rest (set_bit i false state) + coin p1 true * all_alone q p1 k rest (set_bit i true state).
Proof.
  revert i; induction state as [| b state IH]; intros i k L; simpl in L; [lia |].
  destruct i as [| i]; simpl.
  - rewrite Nat.add_0_r, Nat.eqb_refl. rewrite all_alone_past by lia. ring.
  - rewrite (proj2 (Nat.eqb_neq k (k + S i))) by lia.
    assert (E : all_alone q p1 (S k) (Arrive (k + S i) :: rest) state ==
      coin p1 false * all_alone q p1 (S k) rest (set_bit i false state) +
      coin p1 true * all_alone q p1 (S k) rest (set_bit i true state)).
    { replace (k + S i)%nat with (S k + i)%nat by lia. apply IH. lia. }
    rewrite E. unfold coin. ring.
Qed.

Lemma all_alone_answer_past (q p1 : Q) (i : nat) (y s : Z) (rest : list event) (state : list bool) : forall k,
  (i < k)%nat -> all_alone q p1 k (Answer i y s :: rest) state == all_alone q p1 k rest state.
Proof.
  induction state as [| b state IH]; intros k L; simpl; [reflexivity |].
  rewrite (proj2 (Nat.eqb_neq k i)) by lia. rewrite IH by lia. ring.
Qed.

Lemma all_alone_answer (q p1 : Q) (i : nat) (y s : Z) (rest : list event) (state : list bool) : forall k,
  (i < length state)%nat ->
  all_alone q p1 k (Answer (k + i) y s :: rest) state ==
    lap q (y - s - value (bit_at i state)) * all_alone q p1 k rest state.
Proof.
  revert i; induction state as [| b state IH]; intros i k L; simpl in L; [lia |].
  destruct i as [| i]; simpl.
  - rewrite Nat.add_0_r, Nat.eqb_refl. rewrite all_alone_answer_past by lia. unfold bit_at; simpl. ring.
  - rewrite (proj2 (Nat.eqb_neq k (k + S i))) by lia.
    assert (E : all_alone q p1 (S k) (Answer (k + S i) y s :: rest) state ==
      lap q (y - s - value (bit_at i state)) * all_alone q p1 (S k) rest state).
    { replace (k + S i)%nat with (S k + i)%nat by lia. apply IH. lia. }
    rewrite E. unfold bit_at; simpl. ring.
Qed.

Lemma all_alone_opened (q p1 : Q) (bits : list (option bool)) (rest : list event) (state : list bool) : forall k all,
  (forall i, nth i bits None = nth (k + i) all None) ->
  all_alone q p1 k (Opened all :: rest) state == agrees bits state * all_alone q p1 k rest state.
Proof.
  revert bits; induction state as [| b state IH]; intros bits k all N; simpl.
  - destruct bits as [| [] ]; simpl; ring.
  - assert (N0 := N 0%nat). rewrite Nat.add_0_r in N0. rewrite <- N0.
    assert (E : all_alone q p1 (S k) (Opened all :: rest) state == agrees (tl bits) state * all_alone q p1 (S k) rest state).
    { apply IH. intros i. replace (S k + i)%nat with (k + S i)%nat by lia. rewrite <- N. destruct bits; [destruct i |]; reflexivity. }
    rewrite E. destruct bits as [| [b' |] bits]; simpl.
    + ring.
    + ring.
    + ring.
Qed.

Definition in_range (n : nat) (e : event) : Prop :=
  match e with Arrive i => (i < n)%nat | Answer i _ _ => (i < n)%nat | Opened _ => True end.

Lemma set_bit_length (b : bool) (state : list bool) : forall i, length (set_bit i b state) = length state.
Proof. induction state; intros [| i]; simpl; congruence. Qed.

Lemma expected_is_product (q p1 : Q) (events : list event) : forall state,
  Forall (in_range (length state)) events -> expected q p1 events state == all_alone q p1 0 events state.
Proof.
  induction events as [| e rest IH]; intros state F; [rewrite all_alone_nil; reflexivity |].
  inversion F as [| ? ? F1 F2]; subst. destruct e as [i | i y s | bits]; simpl in F1; cbn [expected].
  - assert (E := all_alone_arrive q p1 i rest state 0 F1). rewrite Nat.add_0_l in E. rewrite E.
    rewrite (IH (set_bit i false state)), (IH (set_bit i true state)) by (rewrite set_bit_length; exact F2). reflexivity.
  - assert (E := all_alone_answer q p1 i y s rest state 0 F1). rewrite Nat.add_0_l in E. rewrite E.
    rewrite (IH state F2). reflexivity.
  - rewrite (all_alone_opened q p1 bits rest state 0 bits) by reflexivity. rewrite (IH state F2). reflexivity.
Qed.

Lemma started_product (q p0 p1 : Q) (events : list event) (n : nat) : forall k (c : Q) (f : list bool -> Q),
  (forall state, length state = n -> f state == c * all_alone q p1 k events state) ->
  started p0 n f == c * product_from k n (fun i => window_chance q p0 p1 i events).
Proof.
  induction n as [| n IH]; intros k c f H; simpl.
  - rewrite (H [] eq_refl). simpl. ring.
  - rewrite (IH (S k) (c * alone q p1 k events false)), (IH (S k) (c * alone q p1 k events true)).
    + unfold window_chance, coin. ring.
    + intros state L. rewrite (H (true :: state)) by (simpl; congruence). simpl. ring.
    + intros state L. rewrite (H (false :: state)) by (simpl; congruence). simpl. ring.
Qed.

Theorem factorises (q p0 p1 : Q) (n : nat) (events : list event) :
  Forall (in_range n) events ->
  view_chance q p0 p1 n events == product_from 0 n (fun i => window_chance q p0 p1 i events).
Proof.
  intros F. unfold view_chance. rewrite (started_product q p0 p1 events n 0 1).
  - ring.
  - intros state L. rewrite expected_is_product by (rewrite L; exact F). ring.
Qed.

(** ** One window *)

(** What a window has of the events: its arrivals and observations, as in Release.v. *)
Fixpoint part (i : nat) (arrived : bool) (events : list event) : list (bool * shown) :=
  match events with
  | [] => []
  | Arrive j :: rest => part i (if Nat.eqb i j then true else arrived) rest
  | Answer j y s :: rest =>
      if Nat.eqb i j then (arrived, Number y s) :: part i false rest else part i arrived rest
  | Opened bits :: rest =>
      match nth i bits None with Some b => (arrived, Bit b) :: part i false rest | None => part i arrived rest end
  end.

Definition settled (p1 : Q) (arrived : bool) (w : bits) : bits := if arrived then toss p1 w else w.

Lemma alone_is_forward (q p1 : Q) (i : nat) (events : list event) : forall (arrived : bool) (w : bits),
  zero (settled p1 arrived w) * alone q p1 i events false + one (settled p1 arrived w) * alone q p1 i events true ==
  let final := fold_left (go q p1) (part i arrived events) w in zero final + one final.
Proof.
  induction events as [| e rest IH]; intros arrived w; simpl.
  - destruct arrived; simpl; ring.
  - destruct e as [j | j y s | bits]; simpl.
    + destruct (Nat.eqb i j).
      * rewrite <- (IH true w). destruct arrived; simpl; ring.
      * rewrite <- (IH arrived w). reflexivity.
    + destruct (Nat.eqb i j); simpl.
      * rewrite <- (IH false). unfold go, value; simpl. destruct arrived; simpl;
        replace (y - s - 0)%Z with (y - s)%Z by lia; ring.
      * rewrite <- (IH arrived w). ring.
    + destruct (nth i bits None) as [b |]; simpl.
      * rewrite <- (IH false). unfold go; simpl. destruct arrived, b; simpl; ring.
      * rewrite <- (IH arrived w). ring.
Qed.

Lemma window_is_chance (q p0 p1 : Q) (i : nat) (events : list event) :
  window_chance q p0 p1 i events == chance q p0 p1 (part i false events).
Proof.
  unfold window_chance, chance, coin. assert (E := alone_is_forward q p1 i events false (Bits (1 - p0) p0)).
  simpl in E. rewrite <- E. reflexivity.
Qed.

(** ** One answer without a copy *)

(** e^O for one answer: the ratio of two mixtures. *)
Definition answers_factor (rate K : Q) : Q := mix (p1 rate) K / mix (p0 rate) K.

Lemma chance_of_answer (q c0 c1 : Q) (y s : Z) (a : bool) :
  chance q c0 c1 [(a, Number y s)] ==
    if a then (1 - c1) * lap q (y - s) + c1 * lap q (y - s - 1) else (1 - c0) * lap q (y - s) + c0 * lap q (y - s - 1).
Proof. unfold chance, go, toss; destruct a; simpl; ring. Qed.

Lemma one_answer (q rate : Q) (y s : Z) (a a' : bool) :
  0 < q <= 1 -> 1 <= rate ->
  chance q (p0 rate) (p1 rate) [(a, Number y s)] <=
    answers_factor rate (/ q) * chance q (p0 rate) (p1 rate) [(a', Number y s)].
Proof.
  intros H HR. rewrite !chance_of_answer. unfold answers_factor, p0, p1, Qdiv.
  assert (I : (1 + rate) * / (1 + rate) == 1) by (apply Qmult_inv_r; lra).
  assert (P : 0 < / (1 + rate)) by (apply Qinv_lt_0_compat; lra).
  set (z := / (1 + rate)) in *.
  assert (Z1 : rate * z == 1 - z) by lra. assert (Z2 : z <= 1 # 2) by nra.
  assert (HK := inverse_at_least_one q H). set (K := / q) in *.
  assert (KQ : K * q == 1) by (unfold K; rewrite Qmult_comm; apply Qmult_inv_r; lra).
  set (m0 := mix (1 * z) K). set (m1 := mix (rate * z) K).
  assert (M0 : 1 <= m0) by (apply mix_at_least_one; lra).
  assert (IM : m0 * / m0 == 1) by (apply Qmult_inv_r; lra).
  assert (IP : 0 < / m0) by (apply Qinv_lt_0_compat; lra).
  assert (M01 : m0 <= m1) by (unfold m0, m1; apply mix_coin; lra).
  (* The two worlds' chances are e * (1 - r + r * K) up to a factor, r one of the coins. *)
  assert (F : 1 <= m1 * / m0) by nra.
  assert (G : forall l0 l1, 0 <= l0 -> 0 <= l1 -> (l1 == K * l0 \/ l0 == K * l1) ->
    (1 - z) * l0 + z * l1 <= m1 * / m0 * (z * l0 + (1 - z) * l1) /\
    z * l0 + (1 - z) * l1 <= m1 * / m0 * ((1 - z) * l0 + z * l1)).
  { intros l0 l1 L0 L1 [E | E].
    - assert (E0 : (1 - z) * l0 + z * l1 == l0 * m0) by (rewrite E; unfold m0, mix; ring).
      assert (E1 : z * l0 + (1 - z) * l1 == l0 * m1) by (rewrite E; unfold m1, mix; rewrite Z1; ring).
      rewrite E0, E1. split.
      + assert (l0 * m0 <= l0 * m1) by (apply times_le; assumption). nra.
      + assert (X : m1 * / m0 * (l0 * m0) == l0 * m1 * (m0 * / m0)) by ring. rewrite X, IM. lra.
    - assert (E0 : (1 - z) * l0 + z * l1 == l1 * m1) by (rewrite E; unfold m1, mix; rewrite Z1; ring).
      assert (E1 : z * l0 + (1 - z) * l1 == l1 * m0) by (rewrite E; unfold m0, mix; ring).
      rewrite E0, E1. split.
      + assert (X : m1 * / m0 * (l1 * m0) == l1 * m1 * (m0 * / m0)) by ring. rewrite X, IM. lra.
      + assert (l1 * m0 <= l1 * m1) by (apply times_le; assumption). nra. }
  assert (L0 : 0 < lap q (y - s)) by (apply pow_positive; lra).
  assert (L1 : 0 < lap q (y - s - 1)) by (apply pow_positive; lra).
  assert (D : lap q (y - s - 1) == K * lap q (y - s) \/ lap q (y - s) == K * lap q (y - s - 1)).
  { destruct (Z.ltb_spec 0 (y - s)) as [L | L].
    - left. apply lap_up; [lra | exact L].
    - right. rewrite (lap_down q (y - s) (proj1 H) L).
      transitivity ((K * q) * lap q (y - s)); [rewrite KQ; ring | ring]. }
  destruct (G _ _ (Qlt_le_weak _ _ L0) (Qlt_le_weak _ _ L1) D) as [G1 G2].
  set (l0 := lap q (y - s)) in *. set (l1 := lap q (y - s - 1)) in *.
  assert (N0 : 0 <= (1 - z) * l0 + z * l1) by nra. assert (N1 : 0 <= z * l0 + (1 - z) * l1) by nra.
  set (ratio := m1 * / m0) in *.
  assert (C1 : (1 - rate * z) * l0 + rate * z * l1 == z * l0 + (1 - z) * l1) by (rewrite Z1; ring).
  assert (C0 : (1 - 1 * z) * l0 + 1 * z * l1 == (1 - z) * l0 + z * l1) by ring.
  destruct a, a'; rewrite ?C1, ?C0; try assumption; nra.
Qed.

(** ** The theorem *)

Definition has_copy (i : nat) (events : list event) : nat :=
  length (filter (fun e => match e with Opened bits => match nth i bits None with Some _ => true | None => false end | _ => false end) events).

Definition answers (i : nat) (events : list event) : nat :=
  length (filter (fun e => match e with Answer j _ _ => Nat.eqb i j | _ => false end) events).

Definition observations (events : list event) : list event :=
  filter (fun e => match e with Arrive _ => false | _ => true end) events.

(** What a window loses: one answer without a copy, or one answer with a copy. *)
Definition window_factor (rate K : Q) (i : nat) (events : list event) : Q :=
  match has_copy i events with O => answers_factor rate K | _ => rate * mix (p1 rate) K end.

Lemma part_views (i : nat) (events : list event) : forall events' arrived arrived',
  observations events = observations events' ->
  map snd (part i arrived events) = map snd (part i arrived' events').
Proof.
  assert (Skip : forall ev arrived arrived', map snd (part i arrived ev) = map snd (part i arrived' ev)).
  { induction ev as [| [j | j y s | bits] ev IH]; intros; simpl; [reflexivity | apply IH | |].
    - destruct (Nat.eqb i j); simpl; [f_equal |]; apply IH.
    - destruct (nth i bits None); simpl; [f_equal |]; apply IH. }
  assert (Obs : forall ev arrived, map snd (part i arrived ev) = map snd (part i false (observations ev))).
  { induction ev as [| [j | j y s | bits] ev IH]; intros; simpl; [reflexivity | apply IH | |].
    - destruct (Nat.eqb i j); simpl; [f_equal |]; apply IH.
    - destruct (nth i bits None); simpl; [f_equal |]; apply IH. }
  intros events' a a' E. rewrite (Obs events a), (Obs events' a'), E. reflexivity.
Qed.

Lemma part_counts (i : nat) (events : list event) : forall arrived b,
  copies (map (relative b) (map snd (part i arrived events))) = has_copy i events /\
  numbers (map snd (part i arrived events)) = answers i events.
Proof.
  induction events as [| [j | j y s | bits] events IH]; intros arrived b; simpl.
  - split; reflexivity.
  - apply IH.
  - unfold has_copy, answers in *; simpl. destruct (Nat.eqb i j); simpl; [| apply IH].
    destruct (IH false b) as [IH1 IH2]. split.
    + destruct b; destruct (s <? y)%Z; exact IH1.
    + unfold numbers in *; simpl. rewrite IH2. reflexivity.
  - unfold has_copy, answers in *; simpl. destruct (nth i bits None); simpl; [| apply IH].
    destruct (IH false b) as [IH1 IH2]. split; [rewrite IH1; reflexivity | exact IH2].
Qed.

Lemma one_number (v : list (bool * shown)) :
  numbers (map snd v) = 1%nat -> copies (map (relative true) (map snd v)) = 0%nat ->
  exists a y s, v = [(a, Number y s)].
Proof.
  destruct v as [| [a [y s | b]] v]; simpl; intros N C; try discriminate.
  - destruct v as [| [a' [y' s' | b']] v]; simpl in *.
    + exists a, y, s; reflexivity.
    + unfold numbers in N; simpl in N. discriminate.
    + destruct (s <? y)%Z; discriminate.
Qed.

Lemma shows_one (v : list shown) :
  copies (map (relative true) v) = 1%nat -> exists b, Forall (shows b) v.
Proof.
  induction v as [| [y s | b] v IH]; simpl; intros C; [discriminate | |].
  - assert (C' : copies (map (relative true) v) = 1%nat) by (destruct (s <? y)%Z; exact C).
    destruct (IH C') as [b F]. exists b. constructor; [exact I | exact F].
  - injection C as C. exists b. constructor; [reflexivity |].
    clear IH. induction v as [| [y s | b'] v IH]; [constructor | | discriminate].
    constructor; [exact I |]. apply IH. simpl in C. destruct (s <? y)%Z; exact C.
Qed.

Lemma copies_any (b b' : bool) (v : list shown) : copies (map (relative b) v) = copies (map (relative b') v).
Proof. induction v as [| [y s | c] v IH]; simpl; [reflexivity | | congruence]. destruct b, b', (s <? y)%Z; exact IH. Qed.

Lemma window_loss (q rate : Q) (i : nat) (events events' : list event) :
  0 < q <= 1 -> 1 <= rate -> observations events = observations events' ->
  answers i events = 1%nat -> (has_copy i events <= 1)%nat ->
  window_chance q (p0 rate) (p1 rate) i events <=
    window_factor rate (/ q) i events * window_chance q (p0 rate) (p1 rate) i events'.
Proof.
  intros H HR V N C. rewrite !window_is_chance.
  assert (PV := part_views i events events' false false V).
  destruct (part_counts i events false true) as [PC PN]. rewrite N in PN.
  unfold window_factor. destruct (has_copy i events) as [| [| n]] eqn:HC; [| | lia].
  - destruct (one_number _ PN PC) as [a [y [s E]]].
    rewrite PV in PN, PC. destruct (one_number _ PN PC) as [a' [y' [s' E']]].
    rewrite E, E' in *. simpl in PV. injection PV as -> ->. apply one_answer; assumption.
  - destruct (shows_one _ PC) as [b F].
    assert (J := joint_loss_of_releases q rate b _ _ H HR PV F (eq_trans (copies_any b true _) PC)).
    rewrite PN in J. simpl in J. unfold mix in *. rewrite Qmult_1_r in J. exact J.
Qed.

Lemma product_bound (n : nat) : forall k (f f' g : nat -> Q),
  (forall i, (k <= i < k + n)%nat -> 0 <= f i /\ 0 <= f' i /\ f i <= g i * f' i) ->
  product_from k n f <= product_from k n g * product_from k n f' /\ 0 <= product_from k n f /\ 0 <= product_from k n f'.
Proof.
  induction n as [| n IH]; intros k f f' g B; simpl; [repeat split; lra |].
  destruct (IH (S k) f f' g (fun i L => B i ltac:(lia))) as [I1 [I2 I3]]. destruct (B k ltac:(lia)) as [B1 [B2 B3]].
  repeat split; [| nra | nra].
  set (a := product_from (S k) n f) in *. set (b := product_from (S k) n f') in *. set (c := product_from (S k) n g) in *.
  assert (X : f k * a <= f k * (c * b)) by (apply times_le; assumption).
  assert (Y : (c * b) * f k <= (c * b) * (g k * f' k)) by (apply times_le; [lra | exact B3]).
  lra.
Qed.

Lemma chance_not_negative (q c0 c1 : Q) (v : list (bool * shown)) :
  0 < q -> 0 <= c0 <= 1 -> 0 <= c1 <= 1 -> 0 <= chance q c0 c1 v.
Proof.
  intros H H0 H1. unfold chance.
  assert (G : forall v w, 0 <= zero w -> 0 <= one w ->
    0 <= zero (fold_left (go q c1) v w) /\ 0 <= one (fold_left (go q c1) v w)).
  { clear v. induction v as [| [a o] v IH]; intros w Z O; simpl; [split; assumption |].
    assert (T : 0 <= zero (if a then toss c1 w else w) /\ 0 <= one (if a then toss c1 w else w)).
    { destruct a; simpl; split; try assumption; nra. }
    destruct T as [T0 T1]. apply IH; unfold go; simpl; destruct o as [y s | []]; simpl; try lra.
    - assert (P := pow_positive q (Z.abs_nat (y - s)) H). unfold lap. nra.
    - assert (P := pow_positive q (Z.abs_nat (y - s - 1)) H). unfold lap. nra. }
  destruct (G v (Bits (1 - c0) c0)) as [A B]; simpl; lra.
Qed.

(** Windows that answer once each, and one copy: any arrivals, in any windows, of either world. *)
Theorem person_period (q rate : Q) (n : nat) (events events' : list event) :
  0 < q <= 1 -> 1 <= rate ->
  Forall (in_range n) events -> Forall (in_range n) events' -> observations events = observations events' ->
  (forall i, (i < n)%nat -> answers i events = 1%nat /\ (has_copy i events <= 1)%nat) ->
  view_chance q (p0 rate) (p1 rate) n events <=
    product_from 0 n (fun i => window_factor rate (/ q) i events) * view_chance q (p0 rate) (p1 rate) n events'.
Proof.
  intros H HR R R' V N. rewrite (factorises _ _ _ n events R), (factorises _ _ _ n events' R').
  assert (Coins : 0 <= p0 rate <= 1 /\ 0 <= p1 rate <= 1).
  { assert (I : (1 + rate) * / (1 + rate) == 1) by (apply Qmult_inv_r; lra).
    assert (P : 0 < / (1 + rate)) by (apply Qinv_lt_0_compat; lra).
    unfold p0, p1, Qdiv. split; split; nra. }
  destruct Coins as [C0 C1].
  apply product_bound. intros i L. split; [| split].
  - rewrite window_is_chance. apply chance_not_negative; lra.
  - rewrite window_is_chance. apply chance_not_negative; lra.
  - destruct (N i ltac:(lia)) as [N1 N2]. apply window_loss; assumption.
Qed.

(** ** The bound is attained *)

(** Two windows of a day each, rate 3 and K = 5/4: the first is closed when the copy shows the second. The largest
    ratio over all views and all arrivals of either world is 1083/272, whose logarithm is 1.381688. *)
Definition two_days (a b c : bool) (y1 y2 : Z) (shown : bool) : list event :=
  (if a then [Arrive 0] else []) ++ [Answer 0 y1 0] ++ (if b then [Arrive 1] else []) ++
  [Opened [None; Some shown]] ++ (if c then [Arrive 1] else []) ++ [Answer 1 y2 0].

Example bound_of_two_days : product_from 0 2 (fun i => window_factor 3 (5 # 4) i (two_days false false false 0 0 false)) == 1083 # 272.
Proof. vm_compute. reflexivity. Qed.

Example attained :
  view_chance (4 # 5) (p0 3) (p1 3) 2 (two_days true false true 1 1 false) ==
  (1083 # 272) * view_chance (4 # 5) (p0 3) (p1 3) 2 (two_days false true false 1 1 false).
Proof. vm_compute. reflexivity. Qed.

(** A second copy, of the first window while it was open, is outside of the theorem, and loses more. *)
Definition copied_twice (a b c d : bool) : list event :=
  (if a then [Arrive 0] else []) ++ [Opened [Some false]] ++ (if b then [Arrive 0] else []) ++ [Answer 0 1 0] ++
  (if c then [Arrive 1] else []) ++ [Opened [None; Some false]] ++ (if d then [Arrive 1] else []) ++ [Answer 1 1 0].

Example second_copy_loses_more :
  ~ view_chance (4 # 5) (p0 3) (p1 3) 2 (copied_twice false true false true) <=
    (1083 # 272) * view_chance (4 # 5) (p0 3) (p1 3) 2 (copied_twice true false true false).
Proof. vm_compute. intros H. apply H. reflexivity. Qed.
