#!/usr/bin/env python
"""Deep Q-learning on a pole to be balanced: a target network, a memory of what was seen."""

import argparse
import collections
import copy
import os
import random

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np

Transition = collections.namedtuple("Transition", "obs action reward next_obs done")


class CartPole(object):
    """A pole on a cart that is pushed to the left or to the right."""

    def __init__(self, rng):
        self.rng = rng

    def reset(self):
        self.state = self.rng.uniform(-0.05, 0.05, 4)
        return self.state.copy()

    def step(self, action):
        _, v, angle, speed = self.state
        force = 10.0 if action else -10.0
        push = (force + 0.05 * speed**2 * np.sin(angle)) / 1.1
        turn = (9.8 * np.sin(angle) - np.cos(angle) * push) / (
            0.5 * (4 / 3 - 0.1 * np.cos(angle) ** 2 / 1.1)
        )
        move = push - 0.05 * turn * np.cos(angle) / 1.1
        self.state += 0.02 * np.array([v, move, speed, turn])
        done = abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.21
        return self.state.copy(), 1.0, done


class QFunction(chainer.Chain):
    """Q-function represented by a MLP."""

    def __init__(self, obs_size, n_actions, n_units=64):
        super(QFunction, self).__init__()
        with self.init_scope():
            self.l0 = L.Linear(obs_size, n_units)
            self.l1 = L.Linear(n_units, n_units)
            self.l2 = L.Linear(n_units, n_actions)

    def forward(self, x):
        """Computes Q-values of given observations."""
        h = F.relu(self.l0(x))
        h = F.relu(self.l1(h))
        return self.l2(h)


def get_greedy_action(Q, obs):
    """Get a greedy action wrt a given Q-function."""
    obs = Q.xp.asarray(obs[None], dtype=np.float32)
    with chainer.no_backprop_mode():
        q = Q(obs).array[0]
    return int(q.argmax())


def update(Q, target_Q, opt, samples, gamma=0.99):
    """Update a Q-function with given samples and a target Q-function."""
    obs = np.asarray([s.obs for s in samples], dtype=np.float32)
    action = np.asarray([s.action for s in samples], dtype=np.int32)
    reward = np.asarray([s.reward for s in samples], dtype=np.float32)
    done = np.asarray([s.done for s in samples], dtype=np.float32)
    next_obs = np.asarray([s.next_obs for s in samples], dtype=np.float32)
    # Predicted values: Q(s,a)
    y = F.select_item(Q(obs), action)
    # Target values: r + gamma * max_b Q(s',b)
    with chainer.no_backprop_mode():
        next_q = F.max(target_Q(next_obs), axis=1)
        target = reward + gamma * (1 - done) * next_q
    loss = F.mean_squared_error(y, target)
    Q.cleargrads()
    loss.backward()
    opt.update()


def main():
    parser = argparse.ArgumentParser(description="Chainer example: DQN")
    parser.add_argument("--episodes", type=int, default=25)
    parser.add_argument("--replay-start-size", type=int, default=100)
    parser.add_argument("--target-update-freq", type=int, default=50)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--out", "-o", default="result")
    args = parser.parse_args()

    random.seed(0)
    np.random.seed(0)
    env = CartPole(np.random.RandomState(0))
    memory = collections.deque(maxlen=10**4)
    Q = QFunction(4, 2)
    target_Q = copy.deepcopy(Q)
    opt = chainer.optimizers.Adam(eps=1e-2)
    opt.setup(Q)

    iteration = 0
    for episode in range(args.episodes):
        obs, done, R, steps = env.reset(), False, 0.0, 0
        while not done and steps < 100:
            epsilon = max(0.1, 1.0 - iteration / 400)
            if random.random() < epsilon:
                action = random.randrange(2)
            else:
                action = get_greedy_action(Q, obs)
            new_obs, reward, done = env.step(action)
            R += reward
            memory.append(Transition(obs, action, reward * 1e-2, new_obs, done))
            obs = new_obs
            steps += 1
            iteration += 1
            if len(memory) >= args.replay_start_size:
                update(Q, target_Q, opt, random.sample(list(memory), args.batch_size))
            if iteration % args.target_update_freq == 0:
                target_Q.copyparams(Q)
        if (episode + 1) % 5 == 0:
            print("episode: {} iteration: {} R: {}".format(episode, iteration, R))
    os.makedirs(args.out, exist_ok=True)
    chainer.serializers.save_npz(os.path.join(args.out, "q.npz"), Q)


if __name__ == "__main__":
    main()
