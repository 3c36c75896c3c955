(** One step of two machines that hold shares: what one machine sees can be simulated (docs/proofs/two-machines.md).

    Everything random is uniform and fresh. For every secret (what the cells are, which are touched, what they become)
    there is exactly one randomness behind every view of one machine: so every view has the same probability, whatever
    the secret is, and uniform draws simulate it. Secrets of cells are bits or numbers modulo [modulus]. *)

Require Import Bool List ZArith Lia.
Import ListNotations.

(** ** Bits: a' = a + (e and h_A) + w_A + r, b' = b + (e and h_B) + w_B + r, with xor for + *)

(** A cell, whether a batch touches it, and what it becomes then. *)
Record secret := Secret { cell : bool; touched : bool; becomes : bool }.

(** The share of the first machine, the masks of both, and the blinding on which both agree. *)
Record masks := Masks { a : bool; u_a : bool; h_a : bool; w_a : bool; u_b : bool; r : bool }.

Definition b (s : secret) (m : masks) : bool := xorb (cell s) (a m).
Definition h_b (s : secret) (m : masks) : bool := xorb (touched s) (h_a m).
Definition w_b (s : secret) (m : masks) : bool :=
  xorb (touched s && xorb (xorb (u_a m) (u_b m)) (becomes s)) (w_a m).
Definition opened (s : secret) (m : masks) : bool := xorb (xorb (a m) (u_a m)) (xorb (b s m) (u_b m)).
Definition next_a (s : secret) (m : masks) : bool :=
  xorb (xorb (a m) (opened s m && h_a m)) (xorb (w_a m) (r m)).
Definition next_b (s : secret) (m : masks) : bool :=
  xorb (xorb (b s m) (opened s m && h_b s m)) (xorb (w_b s m) (r m)).

(** The step is right: together the new shares are the new cell. *)
Theorem step_is_right (s : secret) (m : masks) :
  xorb (next_a s m) (next_b s m) = if touched s then becomes s else cell s.
Proof. destruct s as [[] [] []], m as [[] [] [] [] [] []]; reflexivity. Qed.

(** All that one machine handles; its next share is computed from it. *)
Definition view_a (s : secret) (m : masks) : bool * bool * bool * bool * bool * bool :=
  (a m, u_a m, h_a m, w_a m, r m, xorb (b s m) (u_b m)).
Definition view_b (s : secret) (m : masks) : bool * bool * bool * bool * bool * bool :=
  (b s m, u_b m, h_b s m, w_b s m, r m, xorb (a m) (u_a m)).

Definition next_a_of (v : bool * bool * bool * bool * bool * bool) : bool :=
  let '(a, u, h, w, r, received) := v in xorb (xorb a (xorb (xorb a u) received && h)) (xorb w r).
Definition next_b_of (v : bool * bool * bool * bool * bool * bool) : bool :=
  let '(b, u, h, w, r, received) := v in xorb (xorb b (xorb (xorb b u) received && h)) (xorb w r).

Lemma next_a_is_seen (s : secret) (m : masks) : next_a s m = next_a_of (view_a s m).
Proof. destruct s as [[] [] []], m as [[] [] [] [] [] []]; reflexivity. Qed.

Lemma next_b_is_seen (s : secret) (m : masks) : next_b s m = next_b_of (view_b s m).
Proof. destruct s as [[] [] []], m as [[] [] [] [] [] []]; reflexivity. Qed.

Definition masks_of_a (s : secret) (v : bool * bool * bool * bool * bool * bool) : masks :=
  let '(x, u, h, w, k, received) := v in Masks x u h w (xorb received (xorb (cell s) x)) k.

Definition masks_of_b (s : secret) (v : bool * bool * bool * bool * bool * bool) : masks :=
  let '(y, u, h, w, k, received) := v in
  let x := xorb (cell s) y in
  let ua := xorb received x in
  Masks x ua (xorb (touched s) h) (xorb (touched s && xorb (xorb ua u) (becomes s)) w) u k.

Theorem view_a_has_one_cause (s : secret) v : exists! m, view_a s m = v.
Proof.
  destruct v as [[[[[v1 v2] v3] v4] v5] v6].
  exists (masks_of_a s (v1, v2, v3, v4, v5, v6)). split.
  - destruct s as [[] [] []], v1, v2, v3, v4, v5, v6; reflexivity.
  - intros m E. rewrite <- E. destruct s as [[] [] []], m as [[] [] [] [] [] []]; reflexivity.
Qed.

Theorem view_b_has_one_cause (s : secret) v : exists! m, view_b s m = v.
Proof.
  destruct v as [[[[[v1 v2] v3] v4] v5] v6].
  exists (masks_of_b s (v1, v2, v3, v4, v5, v6)). split.
  - destruct s as [[] [] []], v1, v2, v3, v4, v5, v6; reflexivity.
  - intros m E. rewrite <- E. destruct s as [[] [] []], m as [[] [] [] [] [] []]; reflexivity.
Qed.

(** All cells of a step: each has masks of its own. *)
Theorem views_have_one_cause {V M S : Type} (view : S -> M -> V) :
  (forall s v, exists! m, view s m = v) ->
  forall (secrets : list S) (views : list V), length secrets = length views ->
  exists! masks : list M, length masks = length secrets /\
    map (fun sm => view (fst sm) (snd sm)) (combine secrets masks) = views.
Proof.
  intros One secrets. induction secrets as [| s secrets IH]; intros [| v views] L; simpl in L; try discriminate.
  - exists []. split; [split; reflexivity |]. intros [| m ms] [N _]; [reflexivity | discriminate].
  - injection L as L. destruct (IH views L) as [ms [[N E] U]]. destruct (One s v) as [m [Em Um]].
    exists (m :: ms). split.
    + simpl. split; congruence.
    + intros [| m' ms'] [N' E']; [discriminate |]. simpl in *. injection N' as N'. injection E' as E1 E2.
      f_equal; [apply Um; exact E1 | apply U; split; assumption].
Qed.

(** Not masking what is sent shows the cell: the control. *)
Definition view_without_mask (s : secret) (m : masks) : bool * bool := (a m, b s m).

Example without_mask : forall m m' : masks,
  a m = a m' -> view_without_mask (Secret true false false) m <> view_without_mask (Secret false false false) m'.
Proof. intros m m' E. unfold view_without_mask, b; simpl. rewrite E. destruct (a m'); discriminate. Qed.

(** ** Numbers: a' = a + alpha + r, b' = b + (Delta - alpha) - r *)

Section Numbers.
  Open Scope Z_scope.
  Variable modulus : Z.
  Hypothesis positive : 0 < modulus.

  Definition is_number (z : Z) : Prop := 0 <= z < modulus.

  Record number_masks := NumberMasks { share : Z; alpha : Z; blind : Z }.
  Definition are_numbers (m : number_masks) : Prop := is_number (share m) /\ is_number (alpha m) /\ is_number (blind m).

  (** [x] is the stored number and [delta] what the batch adds. *)
  Definition second (x : Z) (m : number_masks) : Z := (x - share m) mod modulus.
  Definition part (delta : Z) (m : number_masks) : Z := (delta - alpha m) mod modulus.

  Theorem sum_is_right (x delta : Z) (m : number_masks) :
    ((share m + alpha m + blind m) + (second x m + part delta m - blind m)) mod modulus = (x + delta) mod modulus.
  Proof.
    unfold second, part.
    replace (share m + alpha m + blind m + ((x - share m) mod modulus + (delta - alpha m) mod modulus - blind m))
      with ((x - share m) mod modulus + ((delta - alpha m) mod modulus + (share m + alpha m))) by ring.
    rewrite Zplus_mod_idemp_l.
    replace (x - share m + ((delta - alpha m) mod modulus + (share m + alpha m)))
      with ((delta - alpha m) mod modulus + (x + alpha m)) by ring.
    rewrite Zplus_mod_idemp_l. f_equal. ring.
  Qed.

  (** The first machine sees its own uniform draws only. The second sees these. *)
  Definition view_second (x delta : Z) (m : number_masks) : Z * Z * Z := (second x m, part delta m, blind m).

  Lemma one_subtrahend (x z y : Z) : is_number y -> is_number z -> (x - y) mod modulus = z -> y = (x - z) mod modulus.
  Proof.
    intros Hy Hz E. rewrite <- E. rewrite Zminus_mod_idemp_r.
    replace (x - (x - y)) with y by ring. symmetry. apply Z.mod_small. exact Hy.
  Qed.

  Theorem view_second_has_one_cause (x delta : Z) (v1 v2 v3 : Z) :
    is_number v1 -> is_number v2 -> is_number v3 ->
    exists m, (are_numbers m /\ view_second x delta m = (v1, v2, v3)) /\
      forall m', are_numbers m' -> view_second x delta m' = (v1, v2, v3) -> m' = m.
  Proof.
    intros H1 H2 H3.
    exists (NumberMasks ((x - v1) mod modulus) ((delta - v2) mod modulus) v3). split.
    - split.
      + unfold are_numbers, is_number; simpl. repeat split; try apply Z.mod_pos_bound; try lia; apply H3.
      + unfold view_second, second, part; simpl. rewrite !Zminus_mod_idemp_r.
        replace (x - (x - v1)) with v1 by ring. replace (delta - (delta - v2)) with v2 by ring.
        rewrite !Z.mod_small by assumption. reflexivity.
    - intros [y1 y2 y3] [N1 [N2 N3]] E. unfold view_second, second, part in E; simpl in *.
      injection E as E1 E2 E3. subst y3. f_equal; apply one_subtrahend; assumption.
  Qed.
End Numbers.

(** ** Answers about bits: m = x xor rho is exchanged, and s_A + s_B = rho *)

Section Answers.
  Open Scope Z_scope.
  Variable modulus : Z.
  Hypothesis positive : 0 < modulus.

  Definition number (c : bool) : Z := if c then 1 else 0.

  (** The first machine's share of the cell, both masks, its part of their sum. *)
  Record answer_masks := AnswerMasks { cell_a : bool; rho_a : bool; rho_b : bool; s_a : Z }.

  Definition cell_b (x : bool) (m : answer_masks) : bool := xorb x (cell_a m).
  Definition s_b (m : answer_masks) : Z := (number (xorb (rho_a m) (rho_b m)) - s_a m) mod modulus.
  Definition masked (x : bool) (m : answer_masks) : bool :=
    xorb (xorb (cell_a m) (rho_a m)) (xorb (cell_b x m) (rho_b m)).

  Theorem answer_is_right (x : bool) (m : answer_masks) :
    let e := number (masked x m) in
    (e + (1 - 2 * e) * s_a m + (1 - 2 * e) * s_b m) mod modulus = number x mod modulus.
  Proof.
    unfold s_b, masked, cell_b. simpl.
    assert (T : forall e k, (e + (1 - 2 * e) * s_a m + (1 - 2 * e) * ((k - s_a m) mod modulus)) mod modulus =
                (e + (1 - 2 * e) * k) mod modulus).
    { intros e k. rewrite <- Zplus_mod_idemp_r, Zmult_mod_idemp_r, Zplus_mod_idemp_r. f_equal. ring. }
    rewrite T. destruct x, (cell_a m), (rho_a m), (rho_b m); reflexivity.
  Qed.

  Definition answer_view_a (x : bool) (m : answer_masks) : bool * bool * Z * bool :=
    (cell_a m, rho_a m, s_a m, xorb (cell_b x m) (rho_b m)).
  Definition answer_view_b (x : bool) (m : answer_masks) : bool * bool * Z * bool :=
    (cell_b x m, rho_b m, s_b m, xorb (cell_a m) (rho_a m)).

  Theorem answer_view_a_has_one_cause (x : bool) v : exists! m, answer_view_a x m = v.
  Proof.
    destruct v as [[[v1 v2] v3] v4]. exists (AnswerMasks v1 v2 (xorb v4 (xorb x v1)) v3). split.
    - unfold answer_view_a, cell_b; simpl. destruct x, v1, v4; reflexivity.
    - intros [y1 y2 y3 y4] E. unfold answer_view_a, cell_b in E; simpl in E. injection E as E1 E2 E3 E4.
      subst v1 v2 v3 v4. f_equal. destruct x, y1, y3; reflexivity.
  Qed.

  Theorem answer_view_b_has_one_cause (x : bool) (v1 v2 v4 : bool) (v3 : Z) :
    0 <= v3 < modulus ->
    exists m, ((0 <= s_a m < modulus) /\ answer_view_b x m = (v1, v2, v3, v4)) /\
      forall m', 0 <= s_a m' < modulus -> answer_view_b x m' = (v1, v2, v3, v4) -> m' = m.
  Proof.
    intros H.
    set (k := number (xorb (xorb v4 (xorb x v1)) v2)).
    exists (AnswerMasks (xorb x v1) (xorb v4 (xorb x v1)) v2 ((k - v3) mod modulus)). split.
    - split; [simpl; apply Z.mod_pos_bound; lia |].
      unfold answer_view_b, s_b, cell_b; simpl. fold k. rewrite Zminus_mod_idemp_r.
      replace (k - (k - v3)) with v3 by ring. rewrite Z.mod_small by assumption.
      destruct x, v1, v4; reflexivity.
    - intros [y1 y2 y3 y4] N E. unfold answer_view_b, s_b, cell_b in E; simpl in *.
      injection E as E1 E2 E3 E4. subst v1 y3 v4.
      assert (K : k = number (xorb y2 v2)) by (unfold k; destruct x, y1, y2; reflexivity).
      rewrite <- K in E3.
      assert (S : y4 = (k - v3) mod modulus) by (apply one_subtrahend; assumption).
      rewrite S. f_equal; destruct x, y1, y2; reflexivity.
  Qed.
End Answers.
